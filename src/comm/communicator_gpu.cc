// The part of a communicator that launches calls on GPUs.
#include <algorithm>
#include <cstring>

#include "src/base/error.h"
#include "src/comm/communicator.h"

namespace weft {

void Communicator::connect_gpu(Deadline deadline) {
  const cuda::GpuPeer mine = gpu_->describe();
  std::vector<cuda::GpuPeer> peers;
  for (const std::string& blob : control_->all_gather(
           std::string(reinterpret_cast<const char*>(&mine), sizeof mine), deadline)) {
    cuda::GpuPeer peer;
    std::memcpy(&peer, blob.data(), std::min(blob.size(), sizeof peer));
    peers.push_back(peer);
  }
  gpu_->connect(peers);
  control_->all_gather("gpu", deadline);  // nobody launches before all are connected
  placement_.reach = true;
}

void Communicator::poll_gpu() {
  if (gpu_ == nullptr || !fault().empty()) return;
  const std::string error = gpu_->error();
  if (!error.empty()) stop(ncclInvalidUsage, fmt::format("{}: {}", context_.label, error), true);
}

void Communicator::launch(std::span<const Call* const> calls) {
  std::vector<cudaStream_t> streams;
  for (const Call* call : calls)
    if (std::find(streams.begin(), streams.end(), call->stream) == streams.end())
      streams.push_back(call->stream);
  gpu_->begin(streams);
  std::vector<const Call*> pairs;
  for (const Call* call : calls) {
    if (call->count == 0) continue;
    if (call->kind == CollectiveKind::kSendRecv) {
      pairs.push_back(call);
      continue;
    }
    const Collective collective{call->kind, nranks_, call->root};
    const size_t bytes = array_bytes(collective, *call);
    const Generator* forced = forced_[static_cast<size_t>(call->kind)];
    cuda::GpuCall gpu_call;
    // Small all_reduces: one shot with flags beside the data, no meeting.
    gpu_call.packed = call->kind == CollectiveKind::kAllReduce && forced == nullptr &&
                      nranks_ > 1 &&
                      bytes <= std::min(cuda::GpuExecutor::packed_limit(), config_.packed_bytes);
    const Generator& generator =
        gpu_call.packed ? kOneShot : choose_generator(collective, bytes, placement_, forced);
    const bool in_place =
        is_in_place(collective, *call, rank_) && call->kind != CollectiveKind::kAllToAll;
    gpu_call.input = call->input;
    gpu_call.output = call->output;
    gpu_call.count = call->count;
    gpu_call.reduction = call->reduction;
    gpu_call.reduces = collective.reduces();
    const uint64_t signature[5] = {
        static_cast<uint64_t>(call->kind), call->count, static_cast<uint64_t>(call->reduction.type),
        static_cast<uint64_t>(call->reduction.op), static_cast<uint64_t>(call->root)};
    gpu_call.signature = static_cast<uint32_t>(siphash(Secret{}, signature, sizeof signature));
    gpu_->run(plan_for(collective, generator, in_place).program, gpu_call);
  }
  if (!pairs.empty()) launch_pairs(pairs);
  gpu_->end(streams);
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
  for (size_t round = 0; round < rounds; round++) gpu_->run_pairs(sends[round], receives[round]);
}

}  // namespace weft
