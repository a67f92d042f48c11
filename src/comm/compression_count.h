// How much compression saves a rank: bytes that it sent to other hosts, and those it would have
// sent.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/comm/call.h"
#include "src/schedule/verify.h"

namespace weft {

// One thread counts, any thread may read.
struct CompressionCount {
  std::atomic<uint64_t> calls{0}, before{0}, after{0};
  std::atomic<int> passes{0};    // the most of a call
  std::atomic<double> bound{0};  // of the coarsest codec

  // A call of this rank that runs as the schedule says.
  void add(const VerifiedSchedule& verified, int rank, const Call& call);
  // Forgets what was counted since a copy of the numbers was made.
  struct Numbers {
    uint64_t calls = 0, before = 0, after = 0;
    int passes = 0;
    double bound = 0;
  };
  Numbers numbers() const { return {calls, before, after, passes, bound}; }
  void set(const Numbers& to);
};

}  // namespace weft
