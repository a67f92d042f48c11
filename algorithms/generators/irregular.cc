// All-to-all with a lane for every message. Lanes may then have different lengths: no lane waits
// for another.
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

Schedule make_irregular(const Collective& c, bool) {
  const int n = c.nranks;
  Schedule s = blank("irregular", c, 1, 2 * n - 1);
  for (int r = 0; r < n; r++) {
    auto& lanes = s.ranks[static_cast<size_t>(r)].lanes;
    add(lanes[0], {Operand::input(r)}, {Operand::output(r)});
    // Every rank visits its peers in another order.
    for (int k = 1; k < n; k++) {
      const int to = wrap(r + k, n), from = wrap(r - k, n);
      add(lanes[static_cast<size_t>(2 * k - 1)], {Operand::input(to)}, {Operand::peer(to)});
      add(lanes[static_cast<size_t>(2 * k)], {Operand::peer(from)}, {Operand::output(from)});
    }
  }
  return s;
}

}  // namespace

const Generator kIrregular = {
    "irregular", "a lane for every message, out of place",
    [](const Collective& c) { return c.kind == CollectiveKind::kAllToAllV; }, make_irregular};

}  // namespace weft
