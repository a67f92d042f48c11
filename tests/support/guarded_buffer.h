// A buffer with poisoned contents and guard bytes before and after, from malloc or from
// ncclMemAlloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::test {

enum class Memory { kMalloc, kNcclMemAlloc };

class GuardedBuffer {
 public:
  static constexpr unsigned char kPoison = 0xa5;
  static constexpr size_t kGuardBytes = 128;

  // `offset` moves data() off its natural alignment.
  GuardedBuffer(size_t bytes, Memory memory, size_t offset = 0);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  void* data() const { return data_; }
  char* bytes() const { return static_cast<char*>(static_cast<void*>(data_)); }
  size_t size() const { return size_; }

  // "" or the guard byte that changed.
  std::string check_guards() const;
  // "" or the byte in [begin, end) that no longer holds the poison.
  std::string check_poison(size_t begin, size_t end) const;

 private:
  Memory memory_;
  size_t size_;
  size_t allocated_;
  unsigned char* base_;
  unsigned char* data_;
};

}  // namespace weft::test
