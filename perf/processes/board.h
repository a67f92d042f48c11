// Memory that the processes of one measurement share. Children inherit it from the parent.
#pragma once

#include <atomic>
#include <cstddef>

#include "nccl.h"

namespace weft::perf {

inline constexpr int kMostRanks = 64;
inline constexpr int kMostRows = 512;

// Plain memory, zero at first. All atomics are address-free, so processes may share it.
struct Board {
  struct Row {
    double us;
    long wrong;
    double launch_us;
    double fresh_us;  // of a call with a new buffer, in the first row
  };
  ncclUniqueId id;
  std::atomic<int> arrived, round;
  double us[kMostRanks], launch_us[kMostRanks];
  long wrong[kMostRanks];
  Row rows[kMostRows];

  // Waits until all `ranks` are here.
  void meet(int ranks);
};
static_assert(std::atomic<int>::is_always_lock_free);

// Called by the parent. Returns a file descriptor that children inherit. Throws std::system_error.
int make_board();
// Maps the board.
Board& map_board(int descriptor);

}  // namespace weft::perf
