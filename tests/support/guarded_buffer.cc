// Allocation, poisoning and guard checks.
#include "tests/support/guarded_buffer.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "nccl.h"
#include "tests/support/device.h"

namespace weft::test {
namespace {

std::string first_changed(const unsigned char* from, size_t n, const char* what) {
  for (size_t i = 0; i < n; ++i) {
    if (from[i] != GuardedBuffer::kPoison) {
      return std::string(what) + " changed at byte " + std::to_string(i) + " of " +
             std::to_string(n) + "; ";
    }
  }
  return {};
}

}  // namespace

GuardedBuffer::GuardedBuffer(size_t bytes, Memory memory, size_t offset)
    : memory_(memory), size_(bytes), allocated_(bytes + offset + 2 * kGuardBytes) {
  void* base = nullptr;
  if (on_gpu()) memory_ = Memory::kMalloc;  // device memory cannot be checked from here
  if (memory_ == Memory::kMalloc) {
    base = shared_memory(allocated_);
    if (base == nullptr) throw std::bad_alloc();
  } else if (const ncclResult_t result = ncclMemAlloc(&base, allocated_); result != ncclSuccess) {
    throw std::runtime_error(std::string("ncclMemAlloc: ") + ncclGetLastError(nullptr));
  }
  base_ = static_cast<unsigned char*>(base);
  data_ = base_ + kGuardBytes + offset;
  std::memset(base_, kPoison, allocated_);
}

GuardedBuffer::~GuardedBuffer() {
  if (memory_ == Memory::kMalloc) {
    free_shared_memory(base_);
  } else {
    ncclMemFree(base_);
  }
}

std::string GuardedBuffer::check_guards() const {
  const auto before = static_cast<size_t>(data_ - base_);
  return first_changed(base_, before, "guard before the buffer") +
         first_changed(data_ + size_, allocated_ - before - size_, "guard after the buffer");
}

std::string GuardedBuffer::check_poison(size_t begin, size_t end) const {
  return first_changed(data_ + begin, end - begin, "memory that must stay untouched");
}

}  // namespace weft::test
