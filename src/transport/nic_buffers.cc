// See nic_buffers.h.
#include "src/transport/nic_buffers.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {

int NicBuffers::put(std::byte* data, size_t bytes, Fd dma_buf) {
  if (answers_.empty()) answers_ = std::vector<std::atomic<uint64_t>>(kSlots * streams_);
  for (size_t slot = 0; slot < kSlots; slot++) {
    Slot& s = slots_[slot];
    const uint64_t generation = s.generation.load(std::memory_order_relaxed);
    if (generation % 2 != 0 || answers(slot) == State::kPending) continue;
    s.data = data;
    s.bytes = bytes;
    s.dma_buf = std::move(dma_buf);
    s.ready = false;
    s.generation.store(generation + 1, std::memory_order_release);
    version_.fetch_add(1, std::memory_order_release);
    return static_cast<int>(slot);
  }
  return -1;
}

void NicBuffers::take_out(int slot) {
  slots_[static_cast<size_t>(slot)].generation.fetch_add(1, std::memory_order_release);
  version_.fetch_add(1, std::memory_order_release);
}

// Of all streams, about the slot as it is now.
NicBuffers::State NicBuffers::answers(size_t slot) const {
  const uint64_t generation = slots_[slot].generation.load(std::memory_order_relaxed);
  State all = State::kReady;
  for (size_t stream = 0; stream < streams_; stream++) {
    const uint64_t answer = answers_[slot * streams_ + stream].load(std::memory_order_acquire);
    if (answer >> 1 != generation) return State::kPending;
    if ((answer & 1) != 0) all = State::kRefused;
  }
  return all;
}

NicBuffers::State NicBuffers::state(int slot) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  if (s.ready) return State::kReady;
  const State now = answers(static_cast<size_t>(slot));
  s.ready = now == State::kReady;
  return now;
}

bool NicBuffers::tidy() {
  bool waits = false;
  for (size_t slot = 0; slot < kSlots; slot++) {
    if (!slots_[slot].dma_buf) continue;
    if (answers(slot) == State::kPending) {
      waits = true;
    } else {
      slots_[slot].dma_buf = {};
    }
  }
  return waits;
}

NicRegistrations::NicRegistrations(std::shared_ptr<NicBuffers> buffers, int pointers)
    : buffers_(std::move(buffers)),
      stream_(buffers_ == nullptr ? 0 : buffers_->join()),
      pointers_(pointers),
      generations_(buffers_ == nullptr ? 0 : NicBuffers::kSlots) {}

void NicRegistrations::look(NetComm& comm) noexcept {
  seen_ = buffers_->version();
  for (size_t slot = 0; slot < generations_.size(); slot++) {
    const uint64_t generation = buffers_->generation(slot);
    if (generation == generations_[slot]) continue;
    generations_[slot] = generation;
    const auto old = std::find_if(known_.begin(), known_.end(),
                                  [&](const Known& known) { return known.slot == slot; });
    if (old != known_.end()) {
      comm.dereg(old->registration);
      known_.erase(old);
    }
    buffers_->answer(slot, stream_, generation, generation % 2 == 0 || add(comm, slot));
  }
}

// What overlaps with the buffer is gone, even if that was not seen yet.
void NicRegistrations::forget(NetComm& comm, const NicBuffers::Buffer& buffer) noexcept {
  std::erase_if(known_, [&](const Known& known) {
    const bool apart = known.buffer.data + known.buffer.bytes <= buffer.data ||
                       buffer.data + buffer.bytes <= known.buffer.data;
    if (!apart) comm.dereg(known.registration);
    return !apart;
  });
}

bool NicRegistrations::add(NetComm& comm, size_t slot) noexcept {
  try {
    const NicBuffers::Buffer buffer = buffers_->buffer(slot);
    forget(comm, buffer);
    known_.reserve(known_.size() + 1);
    void* registration = comm.reg_gpu(buffer.data, buffer.bytes, buffer.dma_buf, pointers_);
    known_.push_back({slot, buffer, registration});
    return true;
  } catch (const std::exception& error) {
    WEFT_INFO(kNet, "a NIC does not take a buffer of {} bytes, its data is copied first: {}",
              buffers_->buffer(slot).bytes, error.what());
    return false;
  }
}

NicRegistrations::Memory NicRegistrations::find(uint64_t address, uint64_t bytes) const noexcept {
  for (const Known& known : known_) {
    const auto begin = reinterpret_cast<uint64_t>(known.buffer.data);
    if (address < begin || address - begin > known.buffer.bytes ||
        bytes > known.buffer.bytes - (address - begin))
      continue;
    return {known.buffer.data + (address - begin), known.registration};
  }
  return {};
}

}  // namespace weft
