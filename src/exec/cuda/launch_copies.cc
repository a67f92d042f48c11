// Launches that use the copy engines.
#include <algorithm>
#include <cstdlib>

#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"

namespace weft::cuda {
namespace {

constexpr size_t kMostCrowdedPieces = 64;

// See warn_about_queues(): copies have queues of their own.
void warn_about_copy_queues(int sharing, int device) {
  const char* text = secure_getenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS");
  const int queues = text != nullptr ? std::max(1, std::atoi(text)) : 8;
  if (sharing > 1 && sharing >= queues)
    WEFT_WARN(
        "{} ranks of this process share GPU {}, which has {} queues for copies: one may be queued "
        "behind another that waits for it. Set CUDA_DEVICE_MAX_COPY_CONNECTIONS=32 before the "
        "program starts",
        sharing, device, queues);
}

}  // namespace

// All ranks get the same answer, because it depends only on what all ranks exchanged.
void GpuExecutor::connect_copies(std::span<const GpuPeer> peers,
                                 std::span<std::byte* const> boards) {
  State& s = *state_;
  if (s.copies == nullptr) return;
  const auto refuse = [&](const std::string& why) {
    WEFT_INFO(kInit, "rank {}: data is moved by kernels, not by copy engines: {}", s.options.rank,
              why);
  };
  uint64_t bytes = s.sizes.copy_stage;
  for (size_t p = 0; p < peers.size(); p++) {
    if (!peers[p].asks_copies) return refuse(fmt::format("rank {} does not ask for them", p));
    if (peers[p].copy_bytes == 0)
      return refuse(static_cast<int>(p) == s.options.rank
                        ? (s.copies->missing().empty() ? "there is no stage" : s.copies->missing())
                        : fmt::format("the GPU of rank {} cannot", p));
    if (boards[p] == nullptr)
      return refuse(fmt::format("no memory is shared with rank {} (NCCL_SHM_DISABLE?)", p));
    bytes = std::min(bytes, peers[p].copy_bytes);
  }
  const GpuPeer& mine = peers[static_cast<size_t>(s.options.rank)];
  std::vector<CopyEngine::Peer> ends;
  for (size_t p = 0; p < peers.size(); p++)
    ends.push_back({reinterpret_cast<std::byte*>(s.comm.mailboxes[p]) + peers[p].copies_at,
                    boards[p] + kCopyBoardAt,
                    std::equal(peers[p].gpu, peers[p].gpu + sizeof mine.gpu, mine.gpu)});
  for (size_t p = 0; p < peers.size(); p++)
    for (size_t q = 0; q < p; q++) s.crowded |= peers[p].process == peers[q].process;
  const size_t slot = bytes / peers.size() / kCopySlots / 256 * 256;
  // A second stream may share a hardware queue with any other stream of the process. Behind this
  // rank's own work that is harmless, because the order of run_copies() has no deadlock. Behind
  // another rank's work it could deadlock.
  s.copies->connect(ends, slot, s.options.sharing == 1, *s.shared);
  if (s.options.rank == 0) warn_about_copy_queues(s.options.sharing, s.options.device);
  WEFT_INFO(kInit, "rank {}: copy engines move data, in pieces of up to {} KiB", s.options.rank,
            slot >> 10);
}

bool GpuExecutor::copies(CollectiveKind kind, size_t bytes) {
  State& s = *state_;
  if (s.copies == nullptr || !s.copies->connected()) return false;
  if (Collective{kind, s.options.nranks, 0}.reduces()) {
    s.copies->tell_of_kernels(kind, "copy engines cannot reduce");
    return false;
  }
  // One thread may launch for several ranks. Queues are finite. If one rank's copies filled its
  // queue, the thread would never launch the others.
  if (s.crowded && bytes > kMostCrowdedPieces * s.copies->slot_bytes()) {
    s.copies->tell_of_kernels(kind, "copies of such sizes would fill the queues");
    return false;
  }
  return true;
}

void GpuExecutor::copy(const Collective& collective, const GpuCall& call) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  const size_t element = element_size(call.reduction.type);
  s.copies->run(copy_work(collective, s.options.rank, call.input, call.output, call.count * element,
                          call.stride * element),
                s.order->stream(), s.order->is_captured());
  s.order->forbid_early_start();
}

void GpuExecutor::copy_send_recvs(std::span<const GpuMessage> sends,
                                  std::span<const GpuMessage> receives) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  CopyWork work;
  const GpuMessage* to_myself = nullptr;
  for (const GpuMessage& m : sends) {
    if (m.peer == s.options.rank) {
      to_myself = &m;
    } else {
      work.sends.push_back({static_cast<std::byte*>(m.pointer), m.bytes, m.peer});
    }
  }
  const GpuMessage* from_myself = nullptr;
  for (const GpuMessage& m : receives) {
    if (m.peer == s.options.rank) {
      from_myself = &m;
    } else {
      work.receives.push_back({static_cast<std::byte*>(m.pointer), m.bytes, m.peer});
    }
  }
  if ((to_myself == nullptr) != (from_myself == nullptr) ||
      (to_myself != nullptr && to_myself->bytes != from_myself->bytes))
    fail(ncclInvalidUsage,
         "rank {} sends to itself what it does not receive in the same group, or not as many bytes",
         s.options.rank);
  if (to_myself != nullptr && to_myself->pointer != from_myself->pointer)
    work.own.push_back({static_cast<std::byte*>(from_myself->pointer),
                        static_cast<const std::byte*>(to_myself->pointer), to_myself->bytes});
  s.copies->run(work, s.order->stream(), s.order->is_captured());
  s.order->forbid_early_start();
}

}  // namespace weft::cuda
