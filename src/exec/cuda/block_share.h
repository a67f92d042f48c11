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

// What a rank finds on its GPU.
struct BlockRoom {
  int free_blocks = 0;  // that nobody has reserved
  int slot_blocks = 0;  // of a slot that it could use; 0: there is none
};

// Blocks of a rank that has its GPU to itself, at most. More do not make links faster.
inline constexpr int kOwnGpuBlocks = 32;

// Percent of the free blocks that a communicator asks for, where the user does not say. A rank that
// has its GPU to itself leaves half to later communicators. Ranks of one communicator that share a
// GPU leave a block each, if they have many: their speed grows with their blocks. So a second
// communicator has blocks of its own, and later ones take turns with it.
inline constexpr int kShareOfOwnGpu = 50;
inline constexpr int kManyBlocks = 8;

// Per rank, equal on all ranks: `percent` (-1: as above) of what is free on the fullest GPU,
// divided by its ranks, at least one where there is room. 0: there is none.
int blocks_per_rank(std::span<const BlockClaim> ranks, int percent, int most);

}  // namespace weft::cuda
