// The result of every synthesis engine and the input of weave(): which piece of the data crosses
// from which rank to which, over which links, in which order. Nothing else lies between routing and
// the Schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/collective.h"

namespace weft {

// Pieces are chunks of blocks: piece = block * Routing::chunks + chunk. Blocks are numbered
// - all_gather, reduce_scatter, all_reduce: by the rank that has or gets the block,
// - broadcast, reduce: one block, 0,
// - alltoall: source * ranks + destination,
// - gather, scatter: by the rank that is not the root.
struct Transfer {
  int32_t piece = 0;
  int32_t from = 0, to = 0;    // ranks; relays are ranks too
  std::vector<int32_t> links;  // of the machine, in order from `from` to `to`, through no other GPU
  double begin_us = 0;         // in the engine's model; only the order counts
  bool operator==(const Transfer&) const = default;
};

// The transfers of one piece form a tree that starts where the piece is at the beginning. For
// collectives that reduce (reduce_scatter, reduce, all_reduce) they belong to the mirror collective
// (all_gather, broadcast) on the machine with every link reversed. weave() turns them back. An
// all_reduce has both: `transfers` gather, `reduction` reduces.
struct Routing {
  Collective collective;
  int32_t chunks = 1;  // per block
  std::vector<Transfer> transfers;
  std::vector<Transfer> reduction;  // all_reduce only: on the reversed machine
};

}  // namespace weft
