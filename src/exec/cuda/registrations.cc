// See registrations.h.
#include "src/exec/cuda/registrations.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"

namespace weft::cuda {
namespace {

// The driver's functions are asked for by name: the library must load where there is no driver.
template <typename Function>
Function driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<Function>(function);
}

}  // namespace

bool find_allocation(const void* pointer, uint64_t& base, uint64_t& size) {
  static const auto get =
      driver<CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr)>("cuMemGetAddressRange");
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  if (get == nullptr || get(&begin, &bytes, reinterpret_cast<CUdeviceptr>(pointer)) != CUDA_SUCCESS)
    return false;
  base = begin;
  size = bytes;
  return true;
}

Registrations::Registrations(int rank, std::span<std::byte* const> boards,
                             std::span<const uint64_t> processes)
    : rank_(rank), processes_(processes.begin(), processes.end()), read_(boards.size(), 0) {
  for (std::byte* board : boards) boards_.push_back(reinterpret_cast<Board*>(board));
  mapped_.resize(boards.size() * kMaxRegistrations);
  mirror_.resize(mapped_.size());
  own_.resize(kMaxRegistrations);
  void* table = nullptr;
  check(cudaMalloc(&table, mirror_.size() * sizeof(uint64_t)), "cudaMalloc");
  table_ = static_cast<uint64_t*>(table);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

Registrations::~Registrations() {
  for (const Mapped& mapped : mapped_)
    if (mapped.opened != nullptr) cudaIpcCloseMemHandle(mapped.opened);
  cudaFree(table_);
  cudaStreamDestroy(stream_);
}

void Registrations::publish(size_t slot, uint64_t base, uint64_t size, const void* handle) {
  Board& board = *boards_[static_cast<size_t>(rank_)];
  BoardEntry& entry = board.entries[slot];
  const uint64_t version = board.version.load(std::memory_order_relaxed) + 2;
  entry.version.store(version - 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  entry.base = base;
  entry.size = size;
  std::memset(entry.handle, 0, sizeof entry.handle);
  if (handle != nullptr) std::memcpy(entry.handle, handle, sizeof entry.handle);
  entry.version.store(version, std::memory_order_release);
  board.version.store(version, std::memory_order_release);
  own_[slot].version = version;
}

void Registrations::add(const void* pointer, size_t size) {
  uint64_t base = 0, bytes = 0;
  if (!find_allocation(pointer, base, bytes) ||
      reinterpret_cast<uint64_t>(pointer) + size > base + bytes) {
    WEFT_INFO(kReg, "the buffer at {} is not one allocation of this GPU: it stays private",
              pointer);
    return;
  }
  for (Own& own : own_)
    if (own.count > 0 && own.base == base && own.size == bytes) {
      own.count++;
      return;
    }
  const auto slot =
      std::find_if(own_.begin(), own_.end(), [](const Own& o) { return o.count == 0; });
  if (slot == own_.end()) {
    WEFT_INFO(kReg, "more than {} allocations are registered: {} stays private", kMaxRegistrations,
              pointer);
    return;
  }
  const OutsideCapture outside;
  cudaIpcMemHandle_t handle;
  if (cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(base)) != cudaSuccess) {
    cudaGetLastError();
    WEFT_INFO(kReg, "the allocation at {:#x} cannot be shared with other processes", base);
    return;
  }
  static_assert(sizeof handle == sizeof BoardEntry::handle);
  slot->base = base;
  slot->size = bytes;
  slot->count = 1;
  publish(static_cast<size_t>(slot - own_.begin()), base, bytes, &handle);
}

void Registrations::remove(const void* pointer) {
  const auto at = reinterpret_cast<uint64_t>(pointer);
  for (size_t slot = 0; slot < own_.size(); slot++) {
    Own& own = own_[slot];
    if (own.count == 0 || at < own.base || at >= own.base + own.size) continue;
    if (--own.count == 0) publish(slot, own.base, 0, nullptr);
    return;
  }
}

void Registrations::import(int peer, size_t slot, const BoardEntry& entry) {
  const size_t index = static_cast<size_t>(peer) * kMaxRegistrations + slot;
  Mapped& mapped = mapped_[index];
  const uint64_t version = entry.version.load(std::memory_order_acquire);
  if (version == mapped.version || version % 2 != 0) return;
  const uint64_t base = entry.base, size = entry.size;
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, entry.handle, sizeof handle);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.version.load(std::memory_order_relaxed) != version) return;  // seen again later
  if (mapped.opened != nullptr) cudaIpcCloseMemHandle(mapped.opened);
  mapped = {version, nullptr};
  mirror_[index] = 0;
  changed_ = true;
  if (size == 0) return;
  if (processes_[static_cast<size_t>(peer)] == processes_[static_cast<size_t>(rank_)]) {
    mirror_[index] = base;
    return;
  }
  check(cudaIpcOpenMemHandle(&mapped.opened, handle, cudaIpcMemLazyEnablePeerAccess),
        "cudaIpcOpenMemHandle of registered memory");
  mirror_[index] = reinterpret_cast<uint64_t>(mapped.opened);
  WEFT_INFO(kReg, "rank {}: {} MiB that rank {} registered are used where they are", rank_,
            size >> 20, peer);
}

void Registrations::catch_up() {
  Board& mine = *boards_[static_cast<size_t>(rank_)];
  for (size_t peer = 0; peer < boards_.size(); peer++) {
    if (static_cast<int>(peer) == rank_) continue;
    const uint64_t version = boards_[peer]->version.load(std::memory_order_acquire);
    if (version == read_[peer]) continue;
    const OutsideCapture outside;
    for (size_t slot = 0; slot < kMaxRegistrations; slot++)
      import(static_cast<int>(peer), slot, boards_[peer]->entries[slot]);
    if (changed_) {
      check(cudaMemcpyAsync(table_, mirror_.data(), mirror_.size() * sizeof(uint64_t),
                            cudaMemcpyHostToDevice, stream_),
            "copying the table of registrations");
      check(cudaStreamSynchronize(stream_), "copying the table of registrations");
      changed_ = false;
    }
    read_[peer] = version;
    mine.seen[peer].store(version, std::memory_order_release);
  }
}

bool Registrations::seen_by_all(uint64_t version) const {
  for (size_t peer = 0; peer < boards_.size(); peer++)
    if (static_cast<int>(peer) != rank_ &&
        boards_[peer]->seen[rank_].load(std::memory_order_acquire) < version)
      return false;
  return true;
}

uint64_t Registrations::place(const void* pointer, size_t size) {
  if (pointer == nullptr || size == 0) return 0;
  const auto at = reinterpret_cast<uint64_t>(pointer);
  const uint64_t allocation = allocation_number(pointer);
  for (int tries = 0; tries < 2; tries++) {
    for (size_t slot = 0; slot < own_.size(); slot++) {
      Own& own = own_[slot];
      if (own.count == 0 || at < own.base || at + size > own.base + own.size) continue;
      if (own.allocation != allocation && own.allocation != 0) {
        // Freed meanwhile, and this is other memory at the same address.
        own.count = 0;
        publish(slot, own.base, 0, nullptr);
        continue;
      }
      if (!seen_by_all(own.version)) return kPrivate;
      return static_cast<uint64_t>(slot + 1) << kOffsetBits | (at - own.base);
    }
    if (allocation == 0 || tries > 0) return kPrivate;
    add(pointer, size);
    for (Own& own : own_)
      if (own.count > 0 && at >= own.base && at < own.base + own.size) own.allocation = allocation;
  }
  return kPrivate;
}

}  // namespace weft::cuda
