// See helped.h. Every chunk has an owner, which sums it. All ranks send it their data on one
// channel of the part, and get the sum on another. Only FIFOs hold data on the way.
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

Schedule make_helped(int nranks, int helpers, const CodecSpec& spec) {
  const HelpedShares shares = helped_shares(nranks, helpers);
  Schedule s =
      blank("helped", {CollectiveKind::kAllReduce, nranks, 0}, kHelpedParts * shares.chunks, 0);
  s.cpu_nodes = helpers;
  const uint8_t codec = spec.kind == Codec::kNone ? 0 : 1;
  if (codec != 0) {
    s.name += "+" + describe(spec);
    s.codecs = {spec};
  }
  const auto with_codec = [codec](Operand operand) {
    operand.codec = codec;
    return operand;
  };
  s.ranks.resize(static_cast<size_t>(nranks + helpers));
  const auto lane = [&](int rank) -> Lane& {
    return s.ranks[static_cast<size_t>(rank)].lanes.emplace_back();
  };
  int first = 0;
  for (int part = 0; part < kHelpedParts; part++)
    for (int owner = 0; owner < nranks + helpers; owner++) {
      const int count = owner < nranks ? shares.rank : shares.helper;
      if (count == 0) continue;
      const int there = 2 * part, back = 2 * part + 1;  // channels
      Operands from, to;
      // An owner goes on with what others see.
      if (owner < nranks) to.push_back(with_codec(Operand::output(first)));
      for (int r = 0; r < nranks; r++) {
        from.push_back(r == owner ? Operand::input(first) : with_codec(Operand::peer(r, there)));
        if (r == owner) continue;
        to.push_back(with_codec(Operand::peer(r, back)));
        Lane& both = lane(r);
        add(both, {Operand::input(first)}, {with_codec(Operand::peer(owner, there))}, count);
        add(both, {with_codec(Operand::peer(owner, back))}, {Operand::output(first)}, count);
      }
      add(lane(owner), std::move(from), std::move(to), count);
      first += count;
    }
  return s;
}

}  // namespace weft
