// See gpu_launcher.h.
#include "src/comm/gpu_launcher.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/generators/widened.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/base/trace.h"
#include "src/comm/block_agreement.h"
#include "src/comm/irregular.h"
#include "src/comm/wide_schedule.h"
#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/rank_blocks.h"
#include "src/exec/one_round_shape.h"
#include "src/planner/proved_schedules.h"
#include "src/planner/via_host.h"
#include "src/schedule/lower.h"

namespace weft {
namespace {

constexpr double kBlockWait = 5;  // seconds for blocks that are about to become free

// Whether it holds for the programs of all ranks. Ranks must decide alike.
bool for_all_ranks(const Generator& generator, const Collective& collective,
                   const std::function<bool(const Program&)>& holds) {
  const auto schedule = ProvedSchedules::instance().get(generator, collective, false);
  for (int rank = 0; rank < collective.nranks; rank++)
    if (!holds(lower(*schedule, rank))) return false;
  return true;
}

}  // namespace

GpuLauncher::GpuLauncher(const cuda::GpuOptions& options, const GpuLauncherParts& parts)
    : rank_(options.rank),
      nranks_(options.nranks),
      config_(parts.config),
      context_(parts.context),
      control_(parts.control),
      mesh_(parts.mesh),
      chooser_(parts.chooser),
      plans_(parts.plans),
      nodes_(parts.nodes),
      operations_(parts.operations),
      compression_(parts.compression),
      gpu_(options),
      losses_(parts.config.compress_losses_bytes,
              [this](size_t floats) { return gpu_.zeros(floats); }) {}

void GpuLauncher::connect(Deadline deadline) {
  const NetLanes net_lanes = mesh_.net_lanes();
  const bool coded_lanes = net_lanes == NetLanes::kCoded;
  std::string why;
  if (!mesh_.one_host() && net_lanes != NetLanes::kAll) {
    why = "ranks are on several hosts";
  } else if (config_.p2p_disable) {
    why = "NCCL_P2P_DISABLE is set";
  } else {
    why = chooser_.agreed().table.via_host;
  }
  // All ranks use the same data path.
  for (const std::string& reason : control_.all_gather(why, deadline))
    if (why.empty()) why = reason;
  if ((why.empty() || coded_lanes) && !connect_peers(deadline)) {
    why = "writes to a peer's memory do not arrive there";
    if (net_lanes != NetLanes::kNone)
      fail(ncclSystemError, "{}: {}; NCCL_P2P_DISABLE=1 goes through host memory", context_.label,
           why);
  }
  Placement placement = chooser_.placement();
  placement.lanes = why.empty();
  placement.coded_lanes = coded_lanes;
  placement.peer_memory = why.empty() && gpu_.complete();
  placement.via_host = rings_ = !why.empty();
  lsa_ = lsa_ && !rings_;
  if (placement.peer_memory) placement.together = gpu_.one_device() && placement.one_process;
  if (rings_ && rank_ == 0)
    WEFT_INFO(kInit, "{}: {}: data between GPUs goes through host memory{}", context_.label, why,
              coded_lanes ? ", unless it is compressed" : "");
  if (rings_ || nodes_.count() > 0) connect_rings();
  if (rings_) send_recv_program_ = merge_lanes(plans_.half(true), plans_.half(false));
  chooser_.place(placement,
                 [this](CollectiveKind kind, size_t bytes) { return gpu_.copies(kind, bytes); });
  stalls_ = std::make_unique<StallWatch>(
      context_.label, config_.stall_warning_s, [this] { return long_wait(); },
      [this] {
        if (context_.stalls) context_.stalls();
      });
}

// All ranks use the same number of thread blocks.
void GpuLauncher::share_blocks(const std::vector<cuda::GpuPeer>& peers, Deadline deadline) {
  BlockAgreementParts parts;
  for (const cuda::GpuPeer& peer : peers)
    parts.claims.push_back({std::string(peer.gpu, sizeof peer.gpu), 0, peer.max_ctas});
  parts.percent = config_.block_share;
  for (const cuda::GpuPeer& peer : peers)
    if (peer.shares_blocks) parts.percent = 0;
  parts.most = cuda::kMaxCtas;
  parts.all_gather = [&](const std::string& mine) { return control_.all_gather(mine, deadline); };
  cuda::RankBlocks& mine = gpu_.blocks();
  parts.look = [&](bool any) { return mine.look(any); };
  parts.reserve = [&](int blocks) { return mine.reserve(blocks); };
  parts.release = [&] { mine.release(); };
  const BlockAgreement agreed = agree_on_blocks(parts, std::min(in_seconds(kBlockWait), deadline));
  gpu_.use_blocks(agreed.blocks);
  if (rank_ == 0)
    WEFT_INFO(kInit, "{}: {} thread blocks per rank{}", context_.label, agreed.blocks,
              agreed.own ? "" : ", which other communicators use too: their calls take turns");
}

// False: the driver grants peer-to-peer access, but some rank finds that it does not work.
bool GpuLauncher::connect_peers(Deadline deadline) {
  const cuda::GpuPeer mine = gpu_.describe();
  std::vector<cuda::GpuPeer> peers;
  for (const std::string& blob : control_.all_gather(
           std::string(reinterpret_cast<const char*>(&mine), sizeof mine), deadline)) {
    cuda::GpuPeer peer;
    std::memcpy(&peer, blob.data(), std::min(blob.size(), sizeof peer));
    peers.push_back(peer);
  }
  share_blocks(peers, deadline);
  std::vector<std::byte*> boards;
  for (int peer = 0; peer < nranks_; peer++) boards.push_back(mesh_.board(peer));
  static_assert(kBoardBytes >= cuda::GpuExecutor::kBoardBytes);
  Machine emulated;
  if (!config_.topo.empty()) emulated = load_machine(config_.topo);
  const auto linked = [&](int peer) {
    if (mesh_.info(peer).host != mesh_.info(rank_).host) return false;
    return config_.topo.empty() || has_direct_path(emulated, rank_, peer);
  };
  std::string trouble, reach;
  try {
    reach = gpu_.connect(
        peers, boards, mesh_.arenas(),
        [this](int peer, uint64_t id) {
          MemoryLink* link = mesh_.link(peer);
          return link != nullptr ? link->borrow(id) : std::pair<Fd, uint64_t>();
        },
        linked);
  } catch (const Error& error) {
    trouble = error.what();
  }
  // No rank launches before all ranks are connected.
  std::vector<std::string> all_reach = control_.all_gather(reach, deadline);
  for (const std::string& reason : control_.all_gather(trouble, deadline))
    if (trouble.empty()) trouble = reason;
  if (trouble.empty()) settle(all_reach);
  if (trouble.empty()) {
    if (!config_.lose_probes) gpu_.write_probes();
    control_.all_gather("written", deadline);
    const int lost = gpu_.missing_probe();
    if (lost >= 0)
      trouble = fmt::format("what rank {} wrote to the memory of rank {}'s GPU did not arrive",
                            lost, rank_);
    for (const std::string& reason : control_.all_gather(trouble, deadline))
      if (trouble.empty()) trouble = reason;
  }
  if (trouble.empty()) return true;
  if (rank_ == 0)
    WEFT_WARN("{}: peer-to-peer access does not work on this machine: {}", context_.label, trouble);
  return false;
}

void GpuLauncher::note_calls(std::span<const Call* const> calls) {
  for (const Call* call : calls) {
    if (call->count == 0 && call->irregular == nullptr) continue;
    const bool send_recv = call->kind == CollectiveKind::kSendRecv;
    const auto type = static_cast<uint8_t>(call->reduction.type),
               op = static_cast<uint8_t>(call->reduction.op);
    if (!send_recv)
      context_.history.add(noted_, common_call(call->kind, type, op, call->root,
                                               call->count * element_size(call->reduction.type)));
    context_.activity.begin(
        {call->kind, call->sends, type, op, call->root, send_recv ? 0 : noted_++, call->count});
  }
}

void GpuLauncher::register_memory(const void* pointer, size_t size) {
  gpu_.register_memory(pointer, size);
  registered_.emplace_back(pointer, size);
}

void GpuLauncher::deregister_memory(const void* pointer) {
  gpu_.deregister_memory(pointer);
  const auto it = std::find_if(registered_.begin(), registered_.end(),
                               [&](const auto& known) { return known.first == pointer; });
  if (it != registered_.end()) registered_.erase(it);
}

// Runs on the control thread.
cuda::LongWait GpuLauncher::long_wait() {
  cuda::LongWait wait = gpu_.long_wait();
  if (wait.whom.empty()) {
    context_.activity.moves();
  } else {
    Activity::Wait told;
    told.peer = wait.peer;
    told.since_ns = monotonic_ns() - static_cast<int64_t>(wait.seconds * 1e9);
    context_.activity.waits(told);
  }
  return wait;
}

std::string GpuLauncher::error() const {
  const cuda::GpuError found = gpu_.error();
  if (found.call < 0 || found.text.empty()) return found.text;
  // Kernels know the last digits only. It is one of the latest calls, or was captured.
  auto number = static_cast<uint64_t>(found.call);
  const uint64_t noted = noted_.load(std::memory_order_relaxed);
  if (noted > number) number += (noted - 1 - number) / cuda::kCallNumbers * cuda::kCallNumbers;
  const auto past = context_.history.find(number);
  return fmt::format("call {}{}{}: {}", number, past ? ", " + describe(*past) : "",
                     found.step < 0 ? "" : fmt::format(", step {}", found.step), found.text);
}

void GpuLauncher::launch(std::span<const Call* const> calls) {
  const uint64_t first = noted_;
  note_calls(calls);
  try {
    launch_all(calls, first);
  } catch (...) {
    // The caller may try again, on this rank alone.
    context_.history.numbers_differ();
    context_.activity.end(true);
    throw;
  }
  context_.activity.launched();
}

// `number`: of the first collective.
void GpuLauncher::launch_all(std::span<const Call* const> calls, uint64_t number) {
  std::vector<cudaStream_t> streams;
  for (const Call* call : calls)
    if (std::find(streams.begin(), streams.end(), call->stream) == streams.end())
      streams.push_back(call->stream);
  const auto launch = gpu_.begin(streams);
  captured_ = gpu_.captured();
  // A rank may capture a graph once more, or one that it never launches.
  if (captured_) context_.history.numbers_differ();
  std::vector<const Call*> send_recvs;
  for (const Call* call : calls) {
    if (call->count > 0 && call->kind == CollectiveKind::kSendRecv) {
      send_recvs.push_back(call);
      continue;
    }
    if (call->count > 0 || call->irregular != nullptr) {
      if (call->ready != nullptr) gpu_.wait_word(call->ready);
      const int64_t begin = begin_record();
      gpu_.number_call(static_cast<int64_t>(number));
      timed({&call, 1}, [&] { launch_collective(*call); });
      record({&call, 1}, begin, number++);
    }
    if (call->done != nullptr) gpu_.write_word(call->done);
  }
  gpu_.number_call(-1);
  if (!send_recvs.empty()) {
    const int64_t begin = begin_record();
    timed(send_recvs, [&] {
      if (rings_)
        launch_ring_send_recvs(send_recvs);
      else
        launch_send_recvs(send_recvs);
    });
    record(send_recvs, begin, 0);
  }
  gpu_.end(streams);
}

// Launches the calls. The observer learns their times if it wants them. Replays of graphs have
// none.
template <typename Launch>
void GpuLauncher::timed(std::span<const Call* const> calls, Launch launch) {
  OperationObserver* observer = context_.observer;
  if (observer == nullptr || captured_ || !observer->wants_kernel_times()) return launch();
  const KernelTimes times = gpu_.begin_timing();
  launch();
  gpu_.end_timing(times);
  for (const Call* call : calls) observer->kernels(call, times);
}

// As a group of sends and receives.
void GpuLauncher::launch_exchange(const Call& exchange) {
  const std::vector<Call> calls = messages_of(exchange);
  std::vector<const Call*> pointers;
  for (const Call& call : calls) pointers.push_back(&call);
  if (pointers.empty()) return;
  if (rings_)
    launch_ring_send_recvs(pointers);
  else
    launch_send_recvs(pointers);
}

void GpuLauncher::launch_collective(const Call& call) {
  if (call.irregular != nullptr) return launch_exchange(call);
  const Collective collective{call.kind, nranks_, call.root};
  const PlanCall asked = plan_call(collective, call, rank_, captured_);
  const Choice choice = chooser_.choose(asked);
  const bool wide = config_.accumulate == "float" && rounds_sums(asked, call);
  if (wide && choice.path == PlanPath::kFifos && !std::exchange(warned_of_sums_, true))
    WEFT_WARN(
        "{}: WEFT_ACCUMULATE=float: GPUs that exchange data through FIFOs in host memory round "
        "partial sums to the call's type",
        context_.label);
  if (choice.path == PlanPath::kFifos)
    return launch_ring_collective(call, collective, choice, asked.in_place);
  cuda::GpuCall gpu_call;
  gpu_call.input = call.input;
  gpu_call.output = call.output;
  gpu_call.count = call.count;
  gpu_call.stride = call.block();
  gpu_call.reduction = call.reduction;
  const uint64_t signature[6] = {static_cast<uint64_t>(call.kind),
                                 call.count,
                                 call.block(),
                                 static_cast<uint64_t>(call.reduction.type),
                                 static_cast<uint64_t>(call.reduction.op),
                                 static_cast<uint64_t>(call.root)};
  gpu_call.signature = static_cast<uint32_t>(siphash(Secret{}, signature, sizeof signature));
  if (choice.path == PlanPath::kLanes || (wide && passes_sums_on(collective, choice)))
    return launch_lanes(call, collective, choice, gpu_call, asked.in_place, wide);
  if (choice.path == PlanPath::kCopyEngines) {
    if (traced()) ran_ = {trace::keep(choice.name), means_of(choice.path, {})};
    return gpu_.copy(collective, gpu_call);
  }
  const GpuEntry& entry = gpu_plan(collective, choice);
  if (entry.plan != nullptr) {
    ran_ = {choice.generator->name.data(), entry.means};
    return gpu_.run(*entry.plan, gpu_call);
  }
  Choice lanes = choice;
  lanes.path = PlanPath::kLanes;
  launch_lanes(call, collective, lanes, gpu_call, asked.in_place, wide);
}

// Whether a kernel other than that of lanes would round sums of some ranks.
bool GpuLauncher::passes_sums_on(const Collective& collective, const Choice& choice) {
  auto& all = pass_sums_on_[static_cast<size_t>(collective.kind)];
  for (const auto& [generator, known] : all)
    if (generator == choice.generator) return known;
  const bool found =
      choice.generator != nullptr &&
      has_partial_sums(*ProvedSchedules::instance().get(*choice.generator, collective, false));
  all.emplace_back(choice.generator, found);
  return found;
}

// These schedules are the same in place and out of place, except for all-to-all. An all-to-all in
// place takes the fallback.
const GpuLauncher::GpuEntry& GpuLauncher::gpu_plan(const Collective& collective,
                                                   const Choice& choice) {
  auto& plans = gpu_plans_[static_cast<size_t>(collective.kind)];
  for (const auto& entry : plans)
    if (entry->generator == choice.generator && entry->root == collective.root) return *entry;
  const auto lowered = [&](const Generator& generator) {
    return lower(*ProvedSchedules::instance().get(generator, collective, false), rank_);
  };
  const bool packets = choice.path == PlanPath::kPackets;
  const Program program = lowered(*choice.generator);
  const bool may_fall_back = choice.generator->peer_memory &&
                             choice.generator->name != kViaScratch.name && nranks_ > 1 &&
                             (!mesh_.one_process() || collective.kind == CollectiveKind::kAllToAll);
  std::shared_ptr<cuda::GpuPlan> plan;
  bool on_lanes = false;
  if (may_fall_back) {
    const Program fallback = lowered(kViaScratch);
    plan = gpu_.prepare(program, &fallback);
  } else {
    const auto all = [&](const auto& holds) {
      return for_all_ranks(*choice.generator, collective, holds);
    };
    const bool one_round =
        packets && all([](const Program& each) { return one_round_shape(each).has_value(); });
    on_lanes = packets && !one_round &&
               !all([&](const Program& each) { return gpu_.takes_packets(each); });
    if (!on_lanes)
      plan = packets ? gpu_.prepare_packets(program, one_round) : gpu_.prepare(program, nullptr);
  }
  if (plan == nullptr && !on_lanes)
    fail(ncclInvalidUsage, "a {} by {} for {} ranks does not fit into a kernel",
         name(collective.kind), choice.generator->name, nranks_);
  WEFT_INFO(kTuning, "{}: {} root {} runs as {}{}: {} steps here", context_.label,
            name(collective.kind), collective.root, choice.generator->name,
            on_lanes  ? " on lanes"
            : packets ? " with the low-latency protocol"
                      : "",
            program.steps.size());
  const char* means = traced() ? means_of(choice.path, program) : nullptr;
  plans.push_back(std::make_unique<GpuEntry>(
      GpuEntry{choice.generator, collective.root, std::move(plan), means}));
  return *plans.back();
}

// Kernels take the messages of a group together (into_kernels()). Lanes and copy engines take at
// most one per peer and direction at a time: the k-th between two ranks in the k-th turn.
void GpuLauncher::launch_send_recvs(std::span<const Call* const> calls) {
  const bool kernels = chooser_.placement().peer_memory;
  std::vector<cuda::GpuMessage> out, in;
  Rounds sends, receives;
  std::vector<size_t> sent(static_cast<size_t>(nranks_), 0),
      received(static_cast<size_t>(nranks_), 0);
  for (const Call* call : calls) {
    void* pointer = call->sends ? const_cast<void*>(call->input) : call->output;
    const cuda::GpuMessage message = {pointer, call->count * element_size(call->reduction.type),
                                      call->root};
    // Both ends of a message decide by its size, so they decide alike.
    if (kernels && !gpu_.copies(CollectiveKind::kSendRecv, message.bytes)) {
      (call->sends ? out : in).push_back(message);
      continue;
    }
    auto& rounds = call->sends ? sends : receives;
    const size_t round = (call->sends ? sent : received)[static_cast<size_t>(call->root)]++;
    if (rounds.size() <= round) rounds.resize(round + 1);
    rounds[round].push_back(message);
  }
  const size_t rounds = std::max(sends.size(), receives.size());
  sends.resize(rounds);
  receives.resize(rounds);
  if (!kernels) return launch_messages(sends, receives);
  for (size_t round = 0; round < rounds; round++)
    gpu_.copy_send_recvs(sends[round], receives[round]);
  if (!out.empty() || !in.empty()) gpu_.run_send_recvs(out, in);
}

}  // namespace weft
