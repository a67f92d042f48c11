// Building blocks that the generators share.
#pragma once

#include <string>
#include <vector>

#include "src/schedule/schedule.h"

namespace weft {

using Operands = std::vector<Operand>;

// Most sources of a step.
inline constexpr int kMostReducedRanks = 64;

inline int wrap(int rank, int nranks) { return ((rank % nranks) + nranks) % nranks; }

// An empty schedule with `lanes` lanes on every rank.
inline Schedule blank(const char* name, const Collective& collective, int chunks, int lanes) {
  Schedule schedule;
  schedule.name = name;
  schedule.collective = collective;
  schedule.chunks = chunks;
  schedule.ranks.resize(static_cast<size_t>(collective.nranks));
  for (RankSchedule& rank : schedule.ranks) rank.lanes.resize(static_cast<size_t>(lanes));
  return schedule;
}

// Appends a step and returns its number in the lane.
inline int add(Lane& lane, Operands from, Operands to, int count = 1,
               std::vector<Dependency> after = {}) {
  lane.steps.push_back({std::move(from), std::move(to), count, std::move(after)});
  return static_cast<int>(lane.steps.size()) - 1;
}

// Removes lanes without steps. Dependencies name the lanes by their new numbers.
inline void drop_empty_lanes(Schedule& schedule) {
  for (RankSchedule& rank : schedule.ranks) {
    std::vector<int> number;
    std::vector<Lane> kept;
    for (Lane& lane : rank.lanes) {
      number.push_back(static_cast<int>(kept.size()));
      if (!lane.steps.empty()) kept.push_back(std::move(lane));
    }
    for (Lane& lane : kept)
      for (Step& step : lane.steps)
        for (Dependency& dependency : step.after)
          dependency.lane = number[static_cast<size_t>(dependency.lane)];
    rank.lanes = std::move(kept);
  }
}

// All ranks but `rank`, nearest successor first, as peers on a channel.
inline Operands everyone_else(int rank, int nranks, int channel = 0) {
  Operands peers;
  for (int k = 1; k < nranks; k++) peers.push_back(Operand::peer(wrap(rank + k, nranks), channel));
  return peers;
}

// One source per rank, in rank order; this rank's is `mine`. All ranks that reduce in this order
// get the same bits.
inline Operands in_rank_order(int rank, int nranks, Operand mine, int channel = 0) {
  Operands sources;
  for (int q = 0; q < nranks; q++) sources.push_back(q == rank ? mine : Operand::peer(q, channel));
  return sources;
}

// A barrier: tokens to and from all other ranks. Earlier writes of any rank are visible after it on
// all ranks.
inline void meet(Lane& lane, int r, int n) {
  add(lane, {}, everyone_else(r, n), 0);
  add(lane, everyone_else(r, n), {}, 0);
}

// A chunk of the owner's buffer, as `rank` addresses it.
inline Operand memory(int rank, int owner, Buffer buffer, int index) {
  return owner == rank ? Operand::local(buffer, index) : Operand::remote(owner, buffer, index);
}

// The schedule of a single rank: copies input to output.
inline Schedule single_rank(const char* name, const Collective& collective) {
  Schedule schedule = blank(name, collective, 1, 1);
  add(schedule.ranks[0].lanes[0], {Operand::input(0)}, {Operand::output(0)});
  return schedule;
}

// Lower rank first, so that both partners compute the same bits.
inline Operands ordered(int rank, int partner, Operand mine) {
  const Operand theirs = Operand::peer(partner);
  return partner < rank ? Operands{theirs, mine} : Operands{mine, theirs};
}

}  // namespace weft
