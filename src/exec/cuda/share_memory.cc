// The executor's part of sharing memory between processes: see registrations.h.
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/cuda_memory.h"
#include "src/exec/cuda/gpu_state.h"

namespace weft::cuda {
namespace {

// Of an allocation that nobody registered. CUDA puts smaller ones into blocks of 2 MiB, and peers
// would map the block.
constexpr uint64_t kLeastShared = 1 << 20;
// Calls that use less of a buffer gain little by sharing it, and they would wait for locks of the
// driver while peers map it.
constexpr uint64_t kLeastUsed = 256 << 10;
// The same where sockets carry data to other hosts: beside them, little is little. While four
// processes of each of two hosts mapped their buffers, an all_gather of 2 MiB took 970 us instead
// of 640, for 50 ms, and then as long as without. One of 32 MiB gains a quarter. (They shared one
// H200 and the loopback; no machine with a GPU per rank has been measured.)
constexpr uint64_t kLeastUsedWithSockets = 4 << 20;

}  // namespace

// Ranks of this host share memory. Without boards all buffers stay private.
void GpuExecutor::share_memory(std::span<std::byte* const> boards,
                               std::span<const uint64_t> processes, Borrow borrow) {
  State& s = *state_;
  std::vector<std::byte*> lists;
  std::vector<uint64_t> sharers;
  std::vector<int> ranks;
  std::vector<int> sharer_of(boards.size(), -1);
  for (size_t rank = 0; rank < boards.size(); rank++) {
    if (boards[rank] == nullptr && !s.options.net_lanes) return;
    if (boards[rank] == nullptr) continue;
    sharer_of[rank] = static_cast<int>(lists.size());
    lists.push_back(boards[rank] + kSharedListAt);
    sharers.push_back(processes[rank]);
    ranks.push_back(static_cast<int>(rank));
  }
  if (lists.size() > kMaxRanks) return;
  if (kSharedListAt + Board::bytes(static_cast<int>(lists.size()), kMostAllocations) > kBoardBytes)
    fail(ncclInternalError, "the board is too small");
  auto driver =
      std::make_shared<CudaMemory>(s.options.device, lists.size() * kPlaces, s.flags, s.order,
                                   [ranks, borrow = std::move(borrow)](int sharer, uint64_t id) {
                                     return borrow(ranks[static_cast<size_t>(sharer)], id);
                                   });
  s.comm.registrations = driver->table();
  SharingOptions options;
  options.automatic = s.options.share_buffers;
  options.most_bytes = s.options.share_bytes;
  options.least_bytes = kLeastShared;
  options.least_used = s.options.cpus_copy ? kLeastUsedWithSockets : kLeastUsed;
  options.slots = kMostAllocations;
  options.regions = kMostRegions;
  options.ranks = ranks;
  const int mine = sharer_of[static_cast<size_t>(s.options.rank)];
  s.sharer_of = std::move(sharer_of);
  s.sharers = static_cast<int>(lists.size());
  s.registrations = std::make_unique<Registrations>(mine, lists, sharers, options, driver);
}

void GpuExecutor::register_memory(const void* pointer, size_t size) {
  State& s = *state_;
  if (s.registrations == nullptr) return;  // peers use plain addresses
  const SetupScope scope(s.options.device);
  s.registrations->add(pointer, size);
}

void GpuExecutor::deregister_memory(const void* pointer) {
  if (state_->registrations != nullptr) state_->registrations->remove(pointer);
}

}  // namespace weft::cuda
