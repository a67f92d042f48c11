// How many thread blocks a communicator asks for. Pure functions.
#pragma once

#include <span>
#include <string>

namespace weft::cuda {

// A rank as far as that depends on it.
struct BlockClaim {
  std::string gpu;      // which ranks share one
  int free_blocks = 0;  // of that GPU, when the rank looked
  int most = 0;         // that the user allows; 0: no limit
};

// Blocks of a rank that has its GPU to itself, at most. More do not make links faster.
inline constexpr int kOwnGpuBlocks = 32;

// Per rank, equal on all ranks: `percent` of what is free on the fullest GPU, divided by its ranks.
// Two blocks per rank stay for later communicators. When only those are left, each gets one. So a
// GPU of 132 SMs that four ranks share has room for eight communicators.
// 0: there is no room, calls take common slots.
int blocks_per_rank(std::span<const BlockClaim> ranks, int percent, int most);

}  // namespace weft::cuda
