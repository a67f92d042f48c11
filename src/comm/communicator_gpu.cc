// The part of a communicator that launches calls on GPUs.
#include <algorithm>
#include <cstring>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/communicator.h"
#include "src/exec/exchange_shape.h"
#include "src/planner/plan_store.h"
#include "src/schedule/lower.h"

namespace weft {

void Communicator::connect_gpu(Deadline deadline) {
  std::string why;
  if (!mesh_->one_host()) {
    why = "ranks are on several hosts";
  } else if (config_.p2p_disable) {
    why = "NCCL_P2P_DISABLE is set";
  } else {
    why = plans_made_.table.staged;
  }
  // All ranks go the same way.
  for (const std::string& reason : control_->all_gather(why, deadline))
    if (why.empty()) why = reason;
  if (why.empty() && !reach_gpus(deadline)) why = "writes to a peer's memory do not arrive there";
  if (why.empty()) {
    placement_.reach = true;
    if (cpu_nodes_ > 0) connect_rings();
    return;
  }
  if (rank_ == 0)
    WEFT_INFO(kInit, "{}: {}: data between GPUs goes through host memory", context_.label, why);
  connect_rings();
  rings_ = placement_.rings = true;
}

// False where some rank finds that peer-to-peer access, which the driver grants, does not work.
bool Communicator::reach_gpus(Deadline deadline) {
  const cuda::GpuPeer mine = gpu_->describe();
  std::vector<cuda::GpuPeer> peers;
  for (const std::string& blob : control_->all_gather(
           std::string(reinterpret_cast<const char*>(&mine), sizeof mine), deadline)) {
    cuda::GpuPeer peer;
    std::memcpy(&peer, blob.data(), std::min(blob.size(), sizeof peer));
    peers.push_back(peer);
  }
  std::vector<std::byte*> boards;
  for (int peer = 0; peer < nranks_; peer++) boards.push_back(mesh_->board(peer));
  static_assert(kBoardBytes >= cuda::GpuExecutor::kBoardBytes);
  std::string trouble;
  try {
    gpu_->connect(peers, boards, mesh_->arenas(), [this](int peer, uint64_t id) {
      MemoryLink* link = mesh_->link(peer);
      return link != nullptr ? link->borrow(id) : std::pair<Fd, uint64_t>();
    });
  } catch (const Error& error) {
    trouble = error.what();
  }
  // Nobody launches before all are connected.
  for (const std::string& reason : control_->all_gather(trouble, deadline))
    if (trouble.empty()) trouble = reason;
  if (trouble.empty()) {
    if (!config_.lose_probes) gpu_->write_probes();
    control_->all_gather("written", deadline);
    const int lost = gpu_->missing_probe();
    if (lost >= 0)
      trouble = fmt::format("what rank {} wrote to the memory of rank {}'s GPU did not arrive",
                            lost, rank_);
    for (const std::string& reason : control_->all_gather(trouble, deadline))
      if (trouble.empty()) trouble = reason;
  }
  if (trouble.empty()) return true;
  if (rank_ == 0)
    WEFT_WARN("{}: peer-to-peer access does not work on this machine: {}", context_.label, trouble);
  return false;
}

void Communicator::register_memory(const void* pointer, size_t size) {
  if (gpu_ != nullptr) gpu_->register_memory(pointer, size);
}

void Communicator::deregister_memory(const void* pointer) {
  if (gpu_ != nullptr) gpu_->deregister_memory(pointer);
}

void Communicator::poll_gpu() {
  if (gpu_ == nullptr || !fault().empty()) return;
  const std::string error = gpu_->error();
  if (!error.empty()) stop(ncclInvalidUsage, fmt::format("{}: {}", context_.label, error), true);
}

void Communicator::launch(std::span<const Call* const> calls) {
  poll_gpu();
  if (!fault().empty()) throw Error(fault_code(), fault());
  std::vector<cudaStream_t> streams;
  for (const Call* call : calls)
    if (std::find(streams.begin(), streams.end(), call->stream) == streams.end())
      streams.push_back(call->stream);
  const auto turn = gpu_->begin(streams);
  captured_ = gpu_->captured();
  if (rings_) {
    launch_rings(calls);
    return gpu_->end(streams);
  }
  std::vector<const Call*> pairs;
  for (const Call* call : calls) {
    if (call->count == 0) continue;
    if (call->kind == CollectiveKind::kSendRecv) {
      pairs.push_back(call);
      continue;
    }
    const Generator* forced = without_captured_cpus(forced_[static_cast<size_t>(call->kind)]);
    const Collective collective{call->kind, nranks_, call->root};
    if (asks_cpus(forced, collective, array_bytes(collective, *call))) {
      launch_rings({&call, 1});
      continue;
    }
    cuda::GpuCall gpu_call;
    gpu_call.input = call->input;
    gpu_call.output = call->output;
    gpu_call.count = call->count;
    gpu_call.reduction = call->reduction;
    const uint64_t signature[5] = {
        static_cast<uint64_t>(call->kind), call->count, static_cast<uint64_t>(call->reduction.type),
        static_cast<uint64_t>(call->reduction.op), static_cast<uint64_t>(call->root)};
    gpu_call.signature = static_cast<uint32_t>(siphash(Secret{}, signature, sizeof signature));
    if (gpu_->copies(call->kind, call->count * element_size(call->reduction.type))) {
      gpu_->copy(collective, gpu_call);
      continue;
    }
    const GpuChoice choice =
        choose_for_gpu(collective, array_bytes(collective, *call), config_.packet_bytes, forced,
                       gpu_->one_device() && placement_.one_process);
    gpu_->run(*gpu_plan(collective, choice).plan, gpu_call);
  }
  if (!pairs.empty()) launch_pairs(pairs);
  gpu_->end(streams);
}

// Whether all ranks' programs are exchanges.
bool Communicator::exchanges(const Generator& generator, const Collective& collective) {
  const auto schedule = PlanStore::instance().get(generator, collective, false);
  for (int rank = 0; rank < nranks_; rank++)
    if (!exchange_shape(lower(*schedule, rank))) return false;
  return true;
}

// Whether a call is in place makes no difference to these schedules; where it does (all-to-all),
// the fallback is taken.
const Communicator::GpuEntry& Communicator::gpu_plan(const Collective& collective,
                                                     const GpuChoice& choice) {
  auto& plans = gpu_plans_[static_cast<size_t>(collective.kind)];
  for (const auto& entry : plans)
    if (entry->generator == choice.generator && entry->root == collective.root) return *entry;
  const auto lowered = [&](const Generator& generator) {
    return lower(*PlanStore::instance().get(generator, collective, false), rank_);
  };
  const Program program = lowered(*choice.generator);
  const bool may_fall_back =
      choice.generator->reaches && choice.generator->name != kStage.name && nranks_ > 1 &&
      (!placement_.one_process || collective.kind == CollectiveKind::kAllToAll);
  std::shared_ptr<cuda::GpuPlan> plan;
  if (may_fall_back) {
    const Program fallback = lowered(kStage);
    plan = gpu_->prepare(program, &fallback);
  } else {
    plan = choice.packed ? gpu_->prepare_packed(program, exchanges(*choice.generator, collective))
                         : gpu_->prepare(program, nullptr);
  }
  if (plan == nullptr)
    fail(ncclInvalidUsage, "a {} by {} for {} ranks does not fit into a kernel",
         name(collective.kind), choice.generator->name, nranks_);
  WEFT_INFO(kTuning, "{}: {} root {} runs as {}{}: {} steps here", context_.label,
            name(collective.kind), collective.root, choice.generator->name,
            choice.packed ? " with the low-latency protocol" : "", program.steps.size());
  plans.push_back(
      std::make_unique<GpuEntry>(GpuEntry{choice.generator, collective.root, std::move(plan)}));
  return *plans.back();
}

// The k-th message between two ranks goes into the k-th kernel on both sides.
void Communicator::launch_pairs(std::span<const Call* const> calls) {
  std::vector<std::vector<cuda::GpuMessage>> sends, receives;
  std::vector<size_t> sent(static_cast<size_t>(nranks_), 0),
      received(static_cast<size_t>(nranks_), 0);
  for (const Call* call : calls) {
    auto& rounds = call->sends ? sends : receives;
    const size_t round = (call->sends ? sent : received)[static_cast<size_t>(call->root)]++;
    if (rounds.size() <= round) rounds.resize(round + 1);
    void* pointer = call->sends ? const_cast<void*>(call->input) : call->output;
    rounds[round].push_back(
        {pointer, call->count * element_size(call->reduction.type), call->root});
  }
  const size_t rounds = std::max(sends.size(), receives.size());
  sends.resize(rounds);
  receives.resize(rounds);
  for (size_t round = 0; round < rounds; round++) {
    // Both ends of a message decide alike: by its size.
    const auto copies = [&](std::vector<cuda::GpuMessage>& messages) {
      const auto kernels = std::partition(messages.begin(), messages.end(), [&](const auto& m) {
        return gpu_->copies(CollectiveKind::kSendRecv, m.bytes);
      });
      return static_cast<size_t>(kernels - messages.begin());
    };
    const std::span<cuda::GpuMessage> out(sends[round]), in(receives[round]);
    const size_t first_out = copies(sends[round]), first_in = copies(receives[round]);
    if (first_out + first_in > 0) gpu_->copy_pairs(out.first(first_out), in.first(first_in));
    if (first_out < out.size() || first_in < in.size())
      gpu_->run_pairs(out.subspan(first_out), in.subspan(first_in));
  }
}

}  // namespace weft
