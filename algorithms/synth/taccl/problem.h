// The problem that TACCL's routing solves: where pieces start, which ranks want them, which links
// each may use, and which pieces are alike by symmetry. Pure data; made once per collective.
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
  int32_t rule = 0;         // pieces with the same rule may use the same links
};

// The links that a piece may use, and the hops from rank to rank over them.
struct TacclRule {
  std::vector<uint8_t> allowed;        // per link
  std::vector<std::vector<int>> hops;  // [from][to], kNoWay if there is none
  static constexpr int kNoWay = 1 << 20;
};

// An element of the group that the sketch's symmetries generate.
struct TacclSymmetry {
  std::vector<int32_t> piece, link, rank;  // index -> index of its image
};

struct TacclProblem {
  Collective collective;  // gathering: the mirror of a collective that reduces
  int chunks = 1;
  LogicalTopology topology;
  std::vector<TacclPiece> pieces;
  std::vector<TacclRule> rules;
  // The identity comes first. Only symmetries that move every piece, so that a decision for one
  // piece decides exactly one for each of the others.
  std::vector<TacclSymmetry> symmetries;
  std::vector<int32_t> leaders;  // one piece of each class of alike pieces

  // Whether the piece may cross the link: its rule allows it, and both ends are on a path of fewest
  // hops to a rank that wants it.
  bool candidate(int32_t piece, int32_t link) const;
  std::vector<std::vector<uint8_t>> near;  // [piece][rank]: on a path of fewest hops
};

// Throws Error(ncclInvalidArgument) if the sketch leaves no path to a rank.
TacclProblem taccl_problem(const Collective& collective, int chunks, LogicalTopology topology);

// A tree per piece: links, parents before children.
using TacclRoutes = std::vector<std::vector<int32_t>>;

}  // namespace weft
