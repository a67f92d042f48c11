// What TACCL's routing has to solve: which pieces start where, who wants them, over which links
// each may go, and which pieces are alike by symmetry. Pure data; made once per collective.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/taccl/logical_topology.h"
#include "src/schedule/collective.h"

namespace weft {

struct TacclPiece {
  int32_t id = 0;  // as in transfers.h
  int source = 0;
  std::vector<int> wanted;  // ranks besides the source
  int32_t rule = 0;         // pieces that may use the same links
};

// Which links a piece may use, and how many hops it is from rank to rank over them.
struct TacclRule {
  std::vector<uint8_t> allowed;        // per link
  std::vector<std::vector<int>> hops;  // [from][to], kNoWay where there is none
  static constexpr int kNoWay = 1 << 20;
};

// An element of the group that the sketch's symmetries generate.
struct TacclSymmetry {
  std::vector<int32_t> piece, link, rank;  // index -> index of its like
};

struct TacclProblem {
  Collective collective;  // of the gathering kind: the mirror of one that reduces
  int chunks = 1;
  LogicalTopology topology;
  std::vector<TacclPiece> pieces;
  std::vector<TacclRule> rules;
  // The identity first. Only symmetries that leave no piece where it is, so that what is decided
  // for one piece decides exactly one for each of the others.
  std::vector<TacclSymmetry> symmetries;
  std::vector<int32_t> leaders;  // pieces, one for all that are alike

  // Whether the piece may cross the link: its rule, and both ends lie on a way of fewest hops to
  // somebody who wants it.
  bool candidate(int32_t piece, int32_t link) const;
  std::vector<std::vector<uint8_t>> near;  // [piece][rank]: on a way of fewest hops
};

// Throws Error(ncclInvalidArgument) where the sketch leaves no way to a rank.
TacclProblem taccl_problem(const Collective& collective, int chunks, LogicalTopology topology);

// A tree per piece: links, parents before children.
using TacclRoutes = std::vector<std::vector<int32_t>>;

}  // namespace weft
