// See registrations.h.
#include "src/exec/cuda/registrations.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"

namespace weft::cuda {

Registrations::Registrations(int rank, int device, std::span<std::byte* const> boards,
                             std::span<const uint64_t> processes, Borrow borrow)
    : rank_(rank),
      device_(device),
      borrow_(std::move(borrow)),
      processes_(processes.begin(), processes.end()),
      read_(boards.size(), 0),
      table_bytes_(boards.size() * kMaxRegistrations * sizeof(uint64_t)) {
  for (std::byte* board : boards) boards_.push_back(reinterpret_cast<Board*>(board));
  mapped_.resize(boards.size() * kMaxRegistrations);
  std::fill_n(mirror_, mapped_.size(), 0);
  own_.resize(kMaxRegistrations);
  copy_table();  // also uses the stream for the first time, while no kernel of this communicator
                 // waits
}

Registrations::~Registrations() {
  for (const Own& own : own_) Descriptors::instance().take_back(own.lent);
  DeviceStore::instance().free_when_quiet(
      device_, [all = std::make_shared<std::vector<Mapped>>(std::move(mapped_))] {
        for (Mapped& mapped : *all) close(mapped);
      });
}

void Registrations::publish(size_t slot, const Entry& said) {
  Board& board = *boards_[static_cast<size_t>(rank_)];
  BoardEntry& entry = board.entries[slot];
  const uint64_t version = board.version.load(std::memory_order_relaxed) + 2;
  entry.version.store(version - 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  entry.base = said.base;
  entry.size = said.size;
  entry.pieces = said.pieces;
  entry.first_descriptor = said.first_descriptor;
  std::memcpy(entry.handle, said.handle, sizeof entry.handle);
  entry.version.store(version, std::memory_order_release);
  board.version.store(version, std::memory_order_release);
  own_[slot].version = version;
}

void Registrations::withdraw(size_t slot) {
  Own& own = own_[slot];
  Entry gone;
  gone.base = own.base;
  publish(slot, gone);
  Descriptors::instance().take_back(own.lent);
  own.lent = 0;
}

Registrations::Entry Registrations::read(const BoardEntry& entry) {
  Entry seen;
  seen.version = entry.version.load(std::memory_order_acquire);
  if (seen.version % 2 != 0) return {};
  seen.base = entry.base;
  seen.size = entry.size;
  seen.pieces = entry.pieces;
  seen.first_descriptor = entry.first_descriptor;
  std::memcpy(seen.handle, entry.handle, sizeof seen.handle);
  std::atomic_thread_fence(std::memory_order_acquire);
  // If the entry has changed meanwhile, a later read sees it.
  return entry.version.load(std::memory_order_relaxed) == seen.version ? seen : Entry{};
}

// Memory from cudaMalloc has a CUDA IPC handle. Memory from cuMemCreate has descriptors.
bool Registrations::share(Own& own, const MemoryRange& range, Entry& entry) {
  const OutsideCapture outside;  // launches call this, too
  cudaIpcMemHandle_t handle;
  static_assert(sizeof handle == sizeof entry.handle);
  if (range.pieces.size() == 1 &&
      cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(range.base)) == cudaSuccess) {
    std::memcpy(entry.handle, &handle, sizeof handle);
    return true;
  }
  cudaGetLastError();
  std::string why;
  std::vector<Descriptors::Lent> descriptors = export_range(range, why);
  if (!descriptors.empty()) {
    entry.pieces = descriptors.size();
    own.lent = entry.first_descriptor = Descriptors::instance().lend(std::move(descriptors));
    if (own.lent != 0) return true;
    why = "too many descriptors would be open at once (ulimit -n)";
  }
  WEFT_INFO(kReg, "the memory at {:#x} ({} allocations) stays private to this process: {}",
            range.base, range.pieces.size(), why);
  return false;
}

void Registrations::add(const void* pointer, size_t size) {
  MemoryRange range;
  if (!find_range(pointer, size, range)) {
    WEFT_INFO(kReg,
              "the buffer at {} does not consist of allocations of this GPU: it stays private",
              pointer);
    return;
  }
  for (Own& own : own_)
    if (own.count > 0 && own.base == range.base && own.size == range.size) {
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
  Entry entry;
  entry.base = range.base;
  entry.size = range.size;
  if (!share(*slot, range, entry)) return;
  slot->base = range.base;
  slot->size = range.size;
  slot->count = 1;
  slot->allocation = 0;
  publish(static_cast<size_t>(slot - own_.begin()), entry);
}

void Registrations::remove(const void* pointer) {
  const auto at = reinterpret_cast<uint64_t>(pointer);
  for (size_t slot = 0; slot < own_.size(); slot++) {
    Own& own = own_[slot];
    if (own.count == 0 || at < own.base || at >= own.base + own.size) continue;
    if (--own.count == 0) withdraw(slot);
    return;
  }
}

void Registrations::close(Mapped& mapped) {
  if (mapped.opened != nullptr) cudaIpcCloseMemHandle(mapped.opened);
  mapped = {};
}

// Also true if the peer has withdrawn the entry meanwhile. Then nothing is mapped, and its board
// has changed.
bool Registrations::open(int peer, const BoardEntry& board, const Entry& entry, Mapped& mapped) {
  std::string why;
  if (entry.pieces == 0) {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, entry.handle, sizeof handle);
    const cudaError_t error =
        cudaIpcOpenMemHandle(&mapped.opened, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error == cudaSuccess) return true;
    mapped.opened = nullptr;
    cudaGetLastError();
    why = fmt::format("cudaIpcOpenMemHandle: {}", cudaGetErrorString(error));
  } else {
    std::vector<Descriptors::Lent> pieces;
    try {
      for (uint64_t n = 0; n < entry.pieces; n++) {
        auto [fd, size] = borrow_(peer, entry.first_descriptor + n * Descriptors::kStep);
        if (!fd) {
          why = "it is lent no more";
          break;
        }
        pieces.push_back({std::move(fd), size});
      }
      if (why.empty()) mapped.range = ImportedRange::map(pieces, device_, why);
    } catch (const Error& error) {
      why = error.what();
    }
    if (mapped.range != nullptr) return true;
  }
  if (board.version.load(std::memory_order_acquire) != entry.version) return true;
  WEFT_WARN("rank {} cannot map memory that rank {} registered, it is copied through a stage: {}",
            rank_, peer, why);
  return false;
}

bool Registrations::import(int peer, size_t slot) {
  const size_t index = static_cast<size_t>(peer) * kMaxRegistrations + slot;
  const BoardEntry& board = boards_[static_cast<size_t>(peer)]->entries[slot];
  Mapped& mapped = mapped_[index];
  const Entry entry = read(board);
  if (entry.version == 0 || entry.version == mapped.version) return true;
  close(mapped);
  mirror_[index] = 0;
  changed_ = true;
  if (entry.size > 0 &&
      processes_[static_cast<size_t>(peer)] == processes_[static_cast<size_t>(rank_)]) {
    mirror_[index] = entry.base;
  } else if (entry.size > 0) {
    if (!open(peer, board, entry, mapped)) return false;
    if (mapped.opened == nullptr && mapped.range == nullptr) return true;
    mirror_[index] =
        mapped.range != nullptr ? mapped.range->base() : reinterpret_cast<uint64_t>(mapped.opened);
    WEFT_INFO(kReg, "rank {}: {} MiB that rank {} registered are used where they are", rank_,
              entry.size >> 20, peer);
  }
  mapped.version = entry.version;
  return true;
}

// Withdraws freed memory, so that peers unmap it too.
void Registrations::withdraw_freed() {
  const uint64_t now = releases();
  if (now == releases_seen_) return;
  releases_seen_ = now;
  for (size_t slot = 0; slot < own_.size(); slot++) {
    Own& own = own_[slot];
    if (own.count == 0 || own.allocation == 0 ||
        own.allocation == allocation_number(reinterpret_cast<const void*>(own.base)))
      continue;
    own.count = 0;
    withdraw(slot);
  }
}

void Registrations::copy_table() {
  check(cudaMemcpyAsync(table_, mirror_, table_bytes_, cudaMemcpyHostToDevice, stream_),
        "copying the table of registrations");
  check(cudaStreamSynchronize(stream_), "copying the table of registrations");
}

void Registrations::catch_up() {
  withdraw_freed();
  Board& mine = *boards_[static_cast<size_t>(rank_)];
  for (size_t peer = 0; peer < boards_.size(); peer++) {
    if (static_cast<int>(peer) == rank_) continue;
    const uint64_t version = boards_[peer]->version.load(std::memory_order_acquire);
    if (version == read_[peer]) continue;
    const OutsideCapture outside;
    bool complete = true;
    for (size_t slot = 0; slot < kMaxRegistrations; slot++)
      complete = import(static_cast<int>(peer), slot) && complete;
    if (changed_) {
      copy_table();
      changed_ = false;
    }
    read_[peer] = version;
    if (complete) mine.seen[peer].store(version, std::memory_order_release);
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
        // The old memory was freed, and this is new memory at the same address.
        own.count = 0;
        withdraw(slot);
        continue;
      }
      if (!seen_by_all(own.version)) return kPrivate;
      if (own.lent != 0) Descriptors::instance().take_back(own.lent);
      own.lent = 0;
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
