// The part of a communicator that chooses and keeps plans.
#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/communicator.h"
#include "src/exec/cuda/host_fifo_fit.h"
#include "src/planner/proved_schedules.h"
#include "src/schedule/lower.h"

namespace weft {

const Communicator::Plan* Communicator::find_plan(const void* source, const Collective& collective,
                                                  bool in_place) const {
  for (const auto& plan : plans_[static_cast<size_t>(collective.kind)])
    if (plan->source == source && plan->root == collective.root && plan->in_place == in_place)
      return plan.get();
  return nullptr;
}

const Communicator::Plan& Communicator::plan_for(const Collective& collective,
                                                 const Generator& generator, bool in_place) {
  if (const Plan* plan = find_plan(&generator, collective, in_place)) return *plan;
  const auto verified = ProvedSchedules::instance().get(generator, collective, in_place);
  return add_plan(std::make_unique<Plan>(), &generator, generator.name, collective, *verified,
                  verified->fifo_depth());
}

const Communicator::Plan& Communicator::add_plan(std::unique_ptr<Plan> plan, const void* source,
                                                 std::string_view label,
                                                 const Collective& collective,
                                                 const VerifiedSchedule& verified, int fifo_depth) {
  plan->source = source;
  plan->root = collective.root;
  plan->in_place = verified.in_place();
  plan->program = lower(verified, rank_);
  plan->program.fifo_depth = fifo_depth;
  if (verified.schedule().cpu_nodes == 0) plan->shape = one_round_shape(plan->program);
  if (verified.schedule().cpu_nodes > cpu_nodes_)
    fail(ncclInvalidUsage, "schedule {} needs {} CPU nodes, there are {}{}", label,
         verified.schedule().cpu_nodes, cpu_nodes_,
         why_no_cpu_nodes_.empty() ? "" : ": " + why_no_cpu_nodes_);
  for (const auto& node : own_nodes_)
    if (node->number() < nranks_ + verified.schedule().cpu_nodes) {
      plan->cpu_programs.push_back(lower(verified, node->number()));
      plan->cpu_programs.back().fifo_depth = fifo_depth;
    }
  // Before CPU nodes hear of it.
  if (rings_connected_ && verified.schedule().cpu_nodes > 0)
    if (const std::string why = unfit_for_host_fifos(verified.schedule()); !why.empty())
      fail(ncclInvalidUsage, "schedule {}: {}", label, why);
  const int channels = std::max(mesh_->plan_channels(), connected_->most_channels());
  for (const auto* ports : {&plan->program.sends, &plan->program.receives})
    for (const ProgramPort& port : *ports)
      if (port.channel < 0 || port.channel >= channels)
        fail(ncclInvalidUsage, "schedule {} uses channel {}, there are {}", label, port.channel,
             channels);
  WEFT_INFO(kTuning, "{}: {} root {} {} runs as {}: {} lanes, {} steps here", context_.label,
            name(collective.kind), collective.root, plan->in_place ? "in place" : "out of place",
            label, plan->program.lanes.size(), plan->program.steps.size());
  auto& plans = plans_[static_cast<size_t>(collective.kind)];
  plans.push_back(std::move(plan));
  return *plans.back();
}

bool Communicator::multi_connection_if_hosts(const Config& config, int nranks) {
  return cuda::available() && kMultiConnection.supports({CollectiveKind::kAllReduce, nranks, 0}) &&
         (config.max_channels <= 0 || config.max_channels >= kMultiConnection.channels);
}

int Communicator::channels_for_plans(const std::vector<PeerInfo>& infos) const {
  const bool one_host = std::all_of(
      infos.begin(), infos.end(), [&](const PeerInfo& info) { return info.host == infos[0].host; });
  int most = !one_host && multi_connection_if_hosts(config_, nranks_) ? kMultiConnection.channels
                                                                      : kCollectiveChannels;
  for (const Generator* generator : forced_)
    if (generator != nullptr) most = std::max(most, generator->channels);
  for (size_t i = 0; i < option_generators_.size() && cpu_nodes_ > 0; i++)
    if (option_generators_[i] != nullptr && agreed_.table.options[i].barred.empty())
      most = std::max(most, option_generators_[i]->channels);
  return most;
}

void Communicator::force_plan(CollectiveKind kind, const Generator* generator) {
  if (generator != nullptr && generator->peer_memory && (gpu_ == nullptr || rings_))
    fail(ncclInvalidUsage, "plan: '{}' reaches into peers' memory, which {}", generator->name,
         gpu_ == nullptr ? "host mode cannot" : "these GPUs cannot");
  if (generator != nullptr && nranks_ > 1 && generator->cpu_nodes > cpu_nodes_)
    fail(ncclInvalidUsage, "plan: '{}' needs {} CPU nodes, there are {}: {}", generator->name,
         generator->cpu_nodes, cpu_nodes_,
         why_no_cpu_nodes_.empty() ? "they are made at init, where WEFT_PLAN or the table asks"
                                   : why_no_cpu_nodes_);
  forced_[static_cast<size_t>(kind)] = generator;
}

bool Communicator::goes_by_rules() const {
  const SelectionTable& table = agreed_.table;
  return (table.advisory && !placement_.peer_memory) ||
         (rings_ && config_.topo.empty() && table.via_host.empty());
}

const Communicator::Plan& Communicator::choose_plan(const Call& call) {
  const Collective collective{call.kind, nranks_, call.root};
  const size_t bytes = array_bytes(collective, call);
  const bool in_place = is_in_place(collective, call, rank_);
  // GPUs that reach each other come here only for CPU nodes.
  if (!imported_->all().empty() && !placement_.peer_memory)
    if (const ImportedSchedule* schedule = imported_for({collective, bytes, call.count, in_place}))
      return plan_for(*schedule, collective, in_place);
  const Generator* forced = without_captured_cpus(forced_[static_cast<size_t>(call.kind)]);
  const SelectionTable& table = agreed_.table;
  const PlanOption* option =
      forced != nullptr || goes_by_rules() ? nullptr : table.choose(call.kind, bytes, false);
  if (option != nullptr && option->schedule >= 0) {
    const ImportedSchedule& schedule =
        *agreed_.schedules->all()[static_cast<size_t>(option->schedule)];
    if (unfit(schedule, {collective, bytes, call.count, in_place}) == Unfit::kNone)
      return plan_for(schedule, collective, in_place);
    option = table.choose(call.kind, bytes, true);
  }
  const Generator* generator = without_captured_cpus(generator_of(option));
  if (generator != nullptr && generator->cpu_nodes <= cpu_nodes_)
    return plan_for(collective, *generator, in_place);
  return plan_for(collective, choose_generator(collective, bytes, placement_, forced), in_place);
}

}  // namespace weft
