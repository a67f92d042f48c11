// The executor's part of sharing memory between processes: see registrations.h.
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/cuda_memory.h"
#include "src/exec/cuda/gpu_state.h"

namespace weft::cuda {
namespace {

// Of an allocation that nobody registered. CUDA puts smaller ones into blocks of 2 MiB, and peers
// would map the block.
constexpr uint64_t kLeastShared = 1 << 20;

}  // namespace

// Without boards all buffers stay private.
void GpuExecutor::share_memory(std::span<std::byte* const> boards,
                               std::span<const uint64_t> processes, Borrow borrow) {
  State& s = *state_;
  std::vector<std::byte*> lists;
  for (std::byte* board : boards) {
    if (board == nullptr) return;
    lists.push_back(board + kSharedListAt);
  }
  if (kSharedListAt + Board::bytes(s.options.nranks, kMostAllocations) > kBoardBytes)
    fail(ncclInternalError, "the board is too small");
  auto driver = std::make_shared<CudaMemory>(s.options.device, lists.size() * kPlaces, s.flags,
                                             s.order, std::move(borrow));
  s.comm.registrations = driver->table();
  SharingOptions options;
  options.automatic = s.options.share_buffers;
  options.most_bytes = s.options.share_bytes;
  options.least_bytes = kLeastShared;
  options.slots = kMostAllocations;
  options.regions = kMostRegions;
  s.registrations =
      std::make_unique<Registrations>(s.options.rank, lists, processes, options, driver);
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
