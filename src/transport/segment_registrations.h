// Memory from ncclMemAlloc that a connection sends as it lies, without a copy: its registrations
// with the network. A segment is registered as a whole at its first use, and deregistered before it
// is freed. (Nothing tells when other host memory is freed, so that goes through rings.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/transport/network.h"

namespace weft {

class Proxy;

// Used by one thread at a time, like its comm: the one that holds the lock of `proxy`. Uses are
// numbers that only grow, as a ring's bytes.
class SegmentRegistrations {
 public:
  struct Memory {
    std::byte* data = nullptr;     // of the whole segment; nullptr: there is no such segment
    void* registration = nullptr;  // nullptr: the network does not take it
  };
  SegmentRegistrations(NetComm& comm, Proxy& proxy) : comm_(comm), proxy_(proxy) {}
  ~SegmentRegistrations();
  SegmentRegistrations(const SegmentRegistrations&) = delete;
  SegmentRegistrations& operator=(const SegmentRegistrations&) = delete;

  // For a use that ends when tidy() is called with `until` or more.
  Memory find(uint64_t segment, uint64_t until) noexcept;
  // Deregisters segments that were freed, also if the connection has failed. Costs next to nothing
  // if none was. False: one was in use.
  bool tidy(uint64_t done) noexcept;

  // Any thread, without locks. Returns when no connection of the process has the segment
  // registered. It is not in Segments any more, so none registers it again.
  static void forget(uint64_t segment) noexcept;

 private:
  struct Known {
    uint64_t segment = 0, until = 0;
    Memory memory;
  };
  void add(uint64_t segment);
  void drop(std::vector<Known>::iterator it) noexcept;

  static constexpr size_t kMost = 64;  // then the least recently used one goes
  NetComm& comm_;
  Proxy& proxy_;
  std::vector<Known> known_;  // most recently used last
  uint64_t done_ = 0, releases_ = 0;
};

}  // namespace weft
