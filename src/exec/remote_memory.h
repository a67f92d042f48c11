// The memory of a rank, for the thread that carries one-sided writes to and from other hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft {

// That thread alone calls it, except for pin() and words.
class RemoteMemory {
 public:
  RemoteMemory() = default;
  virtual ~RemoteMemory() = default;
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;

  // The thread calls it first.
  virtual void enter() {}
  // Buffers between this memory and the network, kept by `owner`.
  virtual void pin(std::byte* memory, size_t bytes, std::shared_ptr<const void> owner) = 0;
  virtual void read(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void write(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // One more signal of a rank, after all writes so far.
  virtual void signal(int source) = 0;
  // A word per rank: requests to it whose source has been read. Only grows.
  virtual uint64_t* sent() = 0;
  // After a word has changed.
  virtual void tell() {}
};

}  // namespace weft
