// Recursive doubling and halving: log2(ranks) exchanges with ever farther (or nearer) partners.
#include <bit>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

bool power_of_two(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

bool supports_recursive(const Collective& c) {
  if (c.kind == CollectiveKind::kAllReduce) return true;
  return (c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kReduceScatter) &&
         power_of_two(c.nranks);
}

// Exchanges whole vectors. Ranks beyond the largest power of two send their input to a partner and
// get the result back.
Schedule all_reduce(const Collective& c) {
  const int n = c.nranks, core = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  Schedule s = blank("recursive", c, 1, 1);
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    if (r >= core) {
      add(lane, {Operand::input(0)}, {Operand::peer(r - core)});
      add(lane, {Operand::peer(r - core)}, {Operand::output(0)});
      continue;
    }
    Operand mine = Operand::input(0);
    if (r + core < n) {
      add(lane, {mine, Operand::peer(r + core)}, {Operand::output(0)});
      mine = Operand::output(0);
    }
    for (int bit = 1; bit < core; bit <<= 1) {
      add(lane, {mine}, {Operand::peer(r ^ bit)});
      add(lane, ordered(r, r ^ bit, mine), {Operand::output(0)});
      mine = Operand::output(0);
    }
    if (r + core < n) add(lane, {mine}, {Operand::peer(r + core)});
  }
  return s;
}

Schedule all_gather(const Collective& c) {
  Schedule s = blank("recursive", c, 1, 1);
  for (int r = 0; r < c.nranks; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    add(lane, {Operand::input(0)}, {Operand::output(r), Operand::peer(r ^ 1)});
    for (int have = 1; have < c.nranks; have <<= 1) {
      const int partner = r ^ have;
      if (have > 1) add(lane, {Operand::output(r & ~(have - 1))}, {Operand::peer(partner)}, have);
      add(lane, {Operand::peer(partner)}, {Operand::output(partner & ~(have - 1))}, have);
    }
  }
  return s;
}

Schedule reduce_scatter(const Collective& c) {
  const int n = c.nranks;
  Schedule s = blank("recursive", c, 1, 1);
  for (int r = 0; r < n; r++) {
    RankSchedule& rank = s.ranks[static_cast<size_t>(r)];
    rank.scratch_chunks = n;
    Lane& lane = rank.lanes[0];
    Buffer buffer = Buffer::kInput;
    for (int half = n / 2; half >= 1; half /= 2) {
      const int partner = r ^ half;
      const int keep = r & ~(half - 1), give = partner & ~(half - 1);
      add(lane, {Operand::local(buffer, give)}, {Operand::peer(partner)}, half);
      add(lane, ordered(r, partner, Operand::local(buffer, keep)),
          {half == 1 ? Operand::output(0) : Operand::scratch(keep)}, half);
      buffer = Buffer::kScratch;
    }
  }
  return s;
}

Schedule make_recursive(const Collective& c, bool) {
  if (c.nranks == 1) return single_rank("recursive", c);
  if (c.kind == CollectiveKind::kAllReduce) return all_reduce(c);
  return c.kind == CollectiveKind::kAllGather ? all_gather(c) : reduce_scatter(c);
}

}  // namespace

const Generator kRecursive = {"recursive", "recursive doubling and halving, log2(ranks) exchanges",
                              supports_recursive, make_recursive};

}  // namespace weft
