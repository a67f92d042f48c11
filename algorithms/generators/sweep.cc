// Load/store schedules for ranks that share one memory. All ranks work on the same block at the
// same time, each on its part, so they go through memory together.
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

constexpr int kMostSweptRanks =
    16;                     // n steps with n destinations must fit into a kernel's parameters
constexpr int kRounds = 8;  // of a broadcast

bool supports_sweep(const Collective& c) {
  return (c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kBroadcast) &&
         c.nranks <= kMostSweptRanks;
}

Schedule make_sweep(const Collective& c, bool) {
  const int n = c.nranks;
  if (n == 1) return single_rank("sweep", c);
  const bool gathers = c.kind == CollectiveKind::kAllGather;
  Schedule s = blank("sweep", c, gathers ? n : kRounds * n, 1);
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    meet(lane, r, n);
    for (int round = 0; round < (gathers ? n : kRounds); round++) {
      const Operand from = gathers ? memory(r, round, Buffer::kInput, r)
                                   : memory(r, c.root, Buffer::kInput, round * n + r);
      Operands to;
      for (int q = 0; q < n; q++) to.push_back(memory(r, q, Buffer::kOutput, round * n + r));
      add(lane, {from}, std::move(to));
    }
    meet(lane, r, n);
  }
  return s;
}

}  // namespace

const Generator kSweep = {"sweep", "as peer_memory, for ranks of one process that share a GPU",
                          supports_sweep, make_sweep, true};

}  // namespace weft
