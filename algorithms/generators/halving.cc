// Halving and doubling: ranks exchange ever smaller halves of the sums, then ever larger parts of
// the result. As many rounds as recursive, as few bytes as ring.
#include <bit>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

bool supports_halving(const Collective& c) { return c.kind == CollectiveKind::kAllReduce; }

// Rank r of the first `core` ranks, whose sums begin in `buffer`.
void exchange(Lane& lane, int r, int core, Buffer buffer) {
  for (int half = core / 2; half >= 1; half /= 2) {
    const int partner = r ^ half, keep = r & ~(half - 1), give = partner & ~(half - 1);
    add(lane, {Operand::local(buffer, give)}, {Operand::peer(partner)}, half);
    add(lane, ordered(r, partner, Operand::local(buffer, keep)), {Operand::output(keep)}, half);
    buffer = Buffer::kOutput;
  }
  for (int have = 1; have < core; have *= 2) {
    const int partner = r ^ have, mine = r & ~(have - 1), theirs = partner & ~(have - 1);
    add(lane, {Operand::output(mine)}, {Operand::peer(partner)}, have);
    add(lane, {Operand::peer(partner)}, {Operand::output(theirs)}, have);
  }
}

// Ranks beyond the largest power of two send their input to a partner and get the result back.
Schedule make_halving(const Collective& c, bool) {
  const int n = c.nranks, core = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  if (n == 1) return single_rank("halving", c);
  Schedule s = blank("halving", c, core, 1);
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    if (r >= core) {
      add(lane, {Operand::input(0)}, {Operand::peer(r - core)}, core);
      add(lane, {Operand::peer(r - core)}, {Operand::output(0)}, core);
      continue;
    }
    const bool two = r + core < n;
    if (two) add(lane, {Operand::input(0), Operand::peer(r + core)}, {Operand::output(0)}, core);
    exchange(lane, r, core, two ? Buffer::kOutput : Buffer::kInput);
    if (two) add(lane, {Operand::output(0)}, {Operand::peer(r + core)}, core);
  }
  return s;
}

}  // namespace

const Generator kHalving = {"halving", "all_reduce by recursive halving, then doubling",
                            supports_halving, make_halving};

}  // namespace weft
