// Pairwise exchange for all-to-all: each rank has one partner per round, so links are used evenly.
#include <bit>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

Schedule make_pairwise(const Collective& c, bool) {
  const int n = c.nranks;
  if (n == 1) return single_rank("pairwise", c);
  const bool xor_partners = std::has_single_bit(static_cast<unsigned>(n));
  Schedule s = blank("pairwise", c, 1, 1);
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    add(lane, {Operand::input(r)}, {Operand::output(r)});
    for (int k = 1; k < n; k++) {
      // If n is no power of two, i + j = k (mod n) pairs ranks too; a rank may be its own partner.
      const int partner = xor_partners ? (r ^ k) : wrap(k - r, n);
      if (partner == r) continue;
      add(lane, {Operand::input(partner)}, {Operand::peer(partner)});
      add(lane, {Operand::peer(partner)}, {Operand::output(partner)});
    }
    // Rounds k = 1..n-1 leave out the pairs with i + j = 0.
    const int partner = wrap(-r, n);
    if (!xor_partners && partner != r) {
      add(lane, {Operand::input(partner)}, {Operand::peer(partner)});
      add(lane, {Operand::peer(partner)}, {Operand::output(partner)});
    }
  }
  return s;
}

}  // namespace

const Generator kPairwise = {
    "pairwise", "one partner per round",
    [](const Collective& c) { return c.kind == CollectiveKind::kAllToAll; }, make_pairwise};

}  // namespace weft
