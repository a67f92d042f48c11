// Memory from ncclMemAlloc that a connection sends as it lies, without a copy: its registrations
// with the network. A segment is registered as a whole at its first use, and deregistered soon
// after it was freed. (Nothing tells when other host memory is freed, so that goes through rings.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/transport/network.h"

namespace weft {

// Used by one thread at a time, like its comm. Uses are numbers that only grow, as a ring's bytes.
class SegmentRegistrations {
 public:
  struct Memory {
    std::byte* data = nullptr;     // of the whole segment; nullptr: there is no such segment
    void* registration = nullptr;  // nullptr: the network does not take it
  };
  // For a use that ends when tidy() is called with `until` or more.
  Memory find(NetComm& comm, uint64_t segment, uint64_t until) noexcept;
  // Deregisters segments that were freed. Costs next to nothing if none was.
  void tidy(NetComm& comm, uint64_t done) noexcept;

 private:
  struct Known {
    uint64_t segment = 0, until = 0;
    Memory memory;
  };
  void drop(NetComm& comm, std::vector<Known>::iterator it) noexcept;

  static constexpr size_t kMost = 64;  // then the least recently used one goes
  std::vector<Known> known_;           // most recently used last
  uint64_t done_ = 0, releases_ = 0;
};

}  // namespace weft
