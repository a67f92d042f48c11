// The part of gpu_launcher.h for schedules that run as lanes.
#include <algorithm>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/trace.h"
#include "src/comm/gpu_launcher.h"
#include "src/comm/wide_schedule.h"
#include "src/planner/proved_schedules.h"
#include "src/schedule/lower.h"
#include "src/transport/proxy.h"

namespace weft {

// The ways to ranks of other hosts. A GPU rings no doorbell, so their proxies must poll.
cuda::GpuPosts GpuLauncher::posts() {
  cuda::GpuPosts posts;
  if (mesh_.net_lanes() == NetLanes::kNone) return posts;
  for (int peer = 0; peer < nranks_; peer++)
    for (int s = 0; s < mesh_.lane_streams(); s++) {
      LaneOut* stream = mesh_.lane_stream(peer, s);
      posts.rings.push_back(stream == nullptr ? nullptr : &stream->posts());
      if (stream != nullptr) posts.owners.push_back(stream->memory());
    }
  for (const NetworkLinks::Link& link : mesh_.network_links()) poll(link.stream->proxy());
  posts.data = mesh_.gpu_data();
  posts.buffers = mesh_.nic_buffers();
  return posts;
}

void GpuLauncher::poll(Proxy& proxy) {
  if (std::find(proxies_.begin(), proxies_.end(), &proxy) != proxies_.end()) return;
  proxies_.push_back(&proxy);
  proxy.keep_polling(true);
}

// Also where an init failed and disconnect() was never called.
void GpuLauncher::stop_polling() noexcept {
  for (Proxy* proxy : proxies_) proxy->keep_polling(false);
  proxies_.clear();
}

// How each pair of ranks exchanges messages, now that all have tried.
void GpuLauncher::settle(const std::vector<std::string>& reach) {
  std::vector<std::byte*> areas;
  for (int peer = 0; peer < nranks_; peer++) areas.push_back(mesh_.area(peer));
  int apart = 0;
  for (size_t a = 0; a < reach.size(); a++)
    for (size_t b = 0; b < a; b++)
      if (mesh_.info(static_cast<int>(a)).host == mesh_.info(static_cast<int>(b)).host)
        apart += reach[a][b] == '1' && reach[b][a] == '1' ? 0 : 1;
  lsa_ = apart == 0;
  cuda::GpuPosts all = posts();
  all.hosts_reach = lsa_;
  gpu_.settle(reach, areas, all);
  if (apart > 0 && rank_ == 0)
    WEFT_INFO(kInit,
              "{}: {} of {} pairs of GPUs have no access to each other's memory: their "
              "messages go through host memory",
              context_.label, apart, nranks_ * (nranks_ - 1) / 2);
}

cuda::SignalWords GpuLauncher::signal_words() const {
  cuda::SignalWords words = gpu_.signal_words();
  for (int peer = 0; peer < nranks_; peer++)
    if (peer != rank_ && !reaches(peer)) words.peers[static_cast<size_t>(peer)] = nullptr;
  return words;
}

const GpuLauncher::LaneEntry& GpuLauncher::lane_plan(const Collective& collective,
                                                     const Choice& choice, bool in_place,
                                                     bool wide) {
  const void* source = choice.schedule != nullptr ? static_cast<const void*>(choice.schedule)
                                                  : static_cast<const void*>(choice.generator);
  auto& plans = lane_plans_[static_cast<size_t>(collective.kind)];
  for (const LaneEntry& entry : plans)
    if (entry.source == source && entry.root == collective.root && entry.in_place == in_place &&
        entry.wide == wide)
      return entry;
  const auto proved = [&](bool aliased) -> std::shared_ptr<const VerifiedSchedule> {
    if (choice.schedule != nullptr)
      return aliased ? choice.schedule->in_place : choice.schedule->out_of_place;
    return ProvedSchedules::instance().get(*choice.generator, collective, aliased,
                                           chooser_.placement().hosts);
  };
  auto verified = proved(in_place);
  const int fifo_depth =
      choice.schedule != nullptr ? choice.schedule->fifo_depth : verified->fifo_depth();
  // In rooted collectives only some ranks have both buffers and know whether they are in place.
  auto also = collective.rooted() ? proved(!in_place) : nullptr;
  const char* runs_as = choice.name;
  if (wide)
    for (auto* plan : {&verified, &also})
      if (*plan != nullptr)
        if (const WideSchedule made = wide_schedule(**plan, collective, fifo_depth);
            made.schedule != nullptr) {
          *plan = made.schedule;
          if (made.ring) runs_as = kRing.name.data();
        }
  LaneEntry entry{source, collective.root, in_place, wide,
                  gpu_.prepare_lanes(*verified, also.get(), fifo_depth)};
  const auto shape = cuda::GpuExecutor::shape_of(*entry.plan);
  WEFT_INFO(kTuning,
            "{}: {} root {} {} runs as {}: {} lanes, {} steps here; {} of {} messages "
            "may go straight to their place",
            context_.label, name(collective.kind), collective.root,
            in_place ? "in place" : "out of place", runs_as, shape.lanes, shape.steps,
            shape.straight, shape.messages);
  if (traced()) {
    entry.name = trace::keep(runs_as);
    entry.means = means_of(PlanPath::kLanes, lower(*verified, rank_));
  }
  plans.push_back(std::move(entry));
  return plans.back();
}

// Counts a compressed call, and finds what earlier ones lost. Memory of losses that had to go may
// be in use until all launched work is done.
void GpuLauncher::compress(const Call& call, const Collective& collective, const Choice& choice,
                           bool in_place, cuda::GpuCall& gpu_call) {
  compression_.add(*(in_place ? choice.schedule->in_place : choice.schedule->out_of_place), rank_,
                   call);
  if (!choice.compression->feedback) return;
  if (losses_.has_gone() && !captured_ && !gpu_.busy()) losses_.release();
  const auto elements = [&](int blocks) { return static_cast<size_t>(blocks) * call.count; };
  const size_t inputs = elements(collective.input_blocks(rank_)),
               outputs = elements(collective.output_blocks(rank_));
  gpu_call.input_losses = losses_.of(call, inputs, outputs, captured_);
  gpu_call.output_losses = gpu_call.input_losses + inputs;
}

void GpuLauncher::launch_lanes(const Call& call, const Collective& collective, const Choice& choice,
                               cuda::GpuCall gpu_call, bool in_place, bool wide) {
  constexpr uint32_t kWideSignature = 0x77696465;
  const LaneEntry& entry = lane_plan(collective, choice, in_place, wide);
  cuda::LanePlan& plan = *entry.plan;
  ran_ = {entry.name, entry.means};
  const auto shape = cuda::GpuExecutor::shape_of(plan);
  if (shape.uniform_only && call.count % static_cast<size_t>(shape.chunks) != 0)
    fail(ncclInvalidUsage, "count {} does not divide by the {} chunks of the schedule", call.count,
         shape.chunks);
  // Sums in float do not overflow, so averages need no scaled inputs.
  gpu_call.reduction = scaled_if_partial(call.reduction, shape.partial_sums && !wide);
  if (wide) gpu_call.signature ^= kWideSignature;
  if (choice.compression != nullptr) compress(call, collective, choice, in_place, gpu_call);
  // Ranks that chose different schedules must notice.
  if (choice.schedule != nullptr)
    gpu_call.signature ^= static_cast<uint32_t>(choice.schedule->hash);
  gpu_.run_lanes(plan, gpu_call);
}

// Messages to many peers are cut by the distance between the two ranks. So both ends of a message
// put it into the same kernel.
void GpuLauncher::launch_messages(const Rounds& sends, const Rounds& receives) {
  constexpr size_t kMost = cuda::GpuExecutor::kMostMessages;
  const auto n = static_cast<size_t>(nranks_), kernels = (n + kMost - 1) / kMost;
  for (size_t round = 0; round < sends.size(); round++) {
    Rounds out(kernels), in(kernels);
    for (const cuda::GpuMessage& message : sends[round])
      out[(static_cast<size_t>(message.peer - rank_ + nranks_) % n) / kMost].push_back(message);
    for (const cuda::GpuMessage& message : receives[round])
      in[(static_cast<size_t>(rank_ - message.peer + nranks_) % n) / kMost].push_back(message);
    for (size_t k = 0; k < kernels; k++)
      if (!out[k].empty() || !in[k].empty()) gpu_.run_messages(out[k], in[k]);
  }
}

}  // namespace weft
