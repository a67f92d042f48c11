// The arguments of the kernel that signals peers and waits for signals. Plain structs, the same for
// host and device.
#pragma once

#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {

inline constexpr int kMostSignals = 32;  // per kernel; a thread each

struct SignalArguments {
  struct Add {
    uint64_t* word;   // at the peer
    uint64_t* given;  // what this rank has added to it
    uint64_t signals;
  };
  struct Wait {
    const uint64_t* word;
    uint64_t* taken;  // what earlier waits have taken of it
    uint64_t signals;
    int32_t peer;
  };
  Watch watch;
  uint32_t adds = 0, waits = 0;
  Add add[kMostSignals] = {};
  Wait wait[kMostSignals] = {};
};
static_assert(sizeof(SignalArguments) <= 4096);

// Of a rank: words for every peer's signals, for what waits have taken of them, for requests whose
// end waits have seen, and for signals given to every peer.
inline size_t signal_bytes(int nranks) {
  return size_t{4} * static_cast<size_t>(nranks) * sizeof(uint64_t);
}

}  // namespace weft::cuda
