// See helped.h. Every chunk has an owner, which sums it. All ranks send it their data on channel 0,
// and get the sum on channel 1. Only FIFOs hold data on the way.
#include "algorithms/generators/helped.h"

#include <numeric>

#include "algorithms/generators/building.h"

namespace weft {

// With n ranks and k helpers, a helper sums 2(n-1)/D of the array and a rank (n-k)/D, where
// D = n^2 + kn - 2k. k = 0 is the usual all_reduce, k = n leaves the sums to the helpers.
HelpedShares helped_shares(int nranks, int helpers) {
  HelpedShares shares{nranks - helpers, 2 * (nranks - 1),
                      nranks * nranks + helpers * nranks - 2 * helpers};
  const int unit = std::gcd(shares.rank, shares.helper);
  return {shares.rank / unit, shares.helper / unit, shares.chunks / unit};
}

Schedule make_helped(int nranks, int helpers) {
  const HelpedShares shares = helped_shares(nranks, helpers);
  Schedule s = blank("helped", {CollectiveKind::kAllReduce, nranks, 0}, shares.chunks, 0);
  s.cpu_nodes = helpers;
  s.ranks.resize(static_cast<size_t>(nranks + helpers));
  const auto lane = [&](int rank) -> Lane& {
    return s.ranks[static_cast<size_t>(rank)].lanes.emplace_back();
  };
  int first = 0;
  for (int owner = 0; owner < nranks + helpers; owner++) {
    const int count = owner < nranks ? shares.rank : shares.helper;
    if (count == 0) continue;
    Operands from, to;
    if (owner < nranks) to.push_back(Operand::output(first));
    for (int r = 0; r < nranks; r++) {
      from.push_back(r == owner ? Operand::input(first) : Operand::peer(r, 0));
      if (r == owner) continue;
      to.push_back(Operand::peer(r, 1));
      add(lane(r), {Operand::input(first)}, {Operand::peer(owner, 0)}, count);
      add(lane(r), {Operand::peer(owner, 1)}, {Operand::output(first)}, count);
    }
    add(lane(owner), std::move(from), std::move(to), count);
    first += count;
  }
  return s;
}

}  // namespace weft
