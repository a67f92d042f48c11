// The caller's buffers stay private. Ranks copy shared data to scratch memory that all ranks can
// access; after a barrier other ranks read it there. The executor divides large data into pieces,
// so scratch stays small.
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

constexpr int kMostRanksViaHost = 32;

bool supports_via_scratch(const Collective& c) {
  return c.kind != CollectiveKind::kSendRecv && c.nranks <= kMostRanksViaHost;
}

// Chunk `r` of every rank's contribution, in rank order; this rank's own comes from its input.
Operands contributions(int r, int n) {
  Operands sources;
  for (int q = 0; q < n; q++)
    sources.push_back(q == r ? Operand::input(r) : Operand::remote(q, Buffer::kScratch, r));
  return sources;
}

// The steps of `lane` before the first, the second and the third barrier.
class ScratchProgram {
 public:
  ScratchProgram(RankSchedule& rank, const Collective& c, int r)
      : rank_(rank), c_(c), r_(r), n_(c.nranks) {}

  void fill() {
    const bool root = r_ == c_.root;
    switch (c_.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kReduce:
      case CollectiveKind::kAllToAll:
        return publish_all();
      case CollectiveKind::kAllGather:
        return publish(0, r_);
      case CollectiveKind::kGather:
        if (!root) step(Operand::input(0), Operand::scratch(0));
        return;
      case CollectiveKind::kBroadcast:
        if (root) publish(0, 0);
        return;
      default:  // scatter
        if (root) publish_all();
    }
  }

  void work() {
    const bool root = r_ == c_.root;
    switch (c_.kind) {
      case CollectiveKind::kAllReduce:
        add(lane(), contributions(r_, n_), {Operand::output(r_), Operand::scratch(n_)});
        break;
      case CollectiveKind::kReduceScatter:
        add(lane(), contributions(r_, n_), {Operand::output(0)});
        break;
      case CollectiveKind::kReduce:
        add(lane(), contributions(r_, n_), {root ? Operand::output(r_) : Operand::scratch(n_)});
        break;
      case CollectiveKind::kAllGather:
        for (int k = 1; k < n_; k++) take(wrap(r_ + k, n_), 0, wrap(r_ + k, n_));
        break;
      case CollectiveKind::kAllToAll:
        for (int k = 1; k < n_; k++) take(wrap(r_ + k, n_), r_, wrap(r_ + k, n_));
        step(Operand::input(r_), Operand::output(r_));
        break;
      case CollectiveKind::kBroadcast:
        if (!root) take(c_.root, 0, 0);
        break;
      case CollectiveKind::kGather:
        for (int k = 1; root && k < n_; k++) take(wrap(r_ + k, n_), 0, wrap(r_ + k, n_));
        if (root) step(Operand::input(0), Operand::output(r_));
        break;
      default:  // scatter
        if (root) {
          step(Operand::input(r_), Operand::output(0));
        } else {
          take(c_.root, r_, 0);
        }
    }
  }

  // A sum is in the scratch of the rank that made it.
  void empty() {
    const bool takes = c_.kind == CollectiveKind::kAllReduce || r_ == c_.root;
    for (int k = 1; takes && k < n_; k++) take(wrap(r_ + k, n_), n_, wrap(r_ + k, n_));
  }

 private:
  Lane& lane() { return rank_.lanes[0]; }
  void step(Operand from, Operand to) { add(lane(), {from}, {to}); }
  void take(int owner, int chunk, int output) {
    step(Operand::remote(owner, Buffer::kScratch, chunk), Operand::output(output));
  }
  // Input chunk q goes to scratch chunk q, for every other rank q.
  void publish_all() {
    for (int k = 1; k < n_; k++)
      step(Operand::input(wrap(r_ + k, n_)), Operand::scratch(wrap(r_ + k, n_)));
  }
  // Copies one chunk for all ranks, and to this rank's own output.
  void publish(int chunk, int output) {
    add(lane(), {Operand::input(chunk)}, {Operand::scratch(chunk), Operand::output(output)});
  }

  RankSchedule& rank_;
  const Collective& c_;
  const int r_, n_;
};

Schedule make_via_scratch(const Collective& c, bool) {
  const int n = c.nranks;
  if (n == 1) return single_rank("via_scratch", c);
  const bool shared = c.kind == CollectiveKind::kAllReduce || c.kind == CollectiveKind::kReduce;
  const bool one_chunk = c.kind == CollectiveKind::kAllGather ||
                         c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kGather;
  Schedule s = blank("via_scratch", c, shared ? n : 1, 1);
  for (int r = 0; r < n; r++) {
    RankSchedule& rank = s.ranks[static_cast<size_t>(r)];
    rank.scratch_chunks = one_chunk ? 1 : shared ? n + 1 : n;
    ScratchProgram program(rank, c, r);
    program.fill();
    meet(rank.lanes[0], r, n);
    program.work();
    meet(rank.lanes[0], r, n);
    if (!shared) continue;
    program.empty();
    meet(rank.lanes[0], r, n);
  }
  return s;
}

}  // namespace

const Generator kViaScratch = {"via_scratch", "through scratch memory that all ranks can reach",
                               supports_via_scratch, make_via_scratch, true};

}  // namespace weft
