// check_rewritten() of check.h.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "src/base/error.h"
#include "src/workload/check.h"

namespace weft::workload {
namespace {

using Kind = CollectiveKind;
constexpr double kTiny = 1e-6;

// What became of one original operation.
struct Piece {
  double low, high;
  int op;
};
using Stages = std::map<int, std::vector<Piece>>;

bool covers(const Instances& parts, const std::vector<int>& ranks) {
  std::set<int> seen;
  for (const auto& part : parts)
    if (std::find(ranks.begin(), ranks.end(), part.front()) != ranks.end())
      seen.insert(part.begin(), part.end());
  return seen == std::set<int>(ranks.begin(), ranks.end());
}

// Whether `inside` and `across` are the rows and columns of every group of `whole`.
bool is_grid(const Instances& whole, const Instances& inside, const Instances& across) {
  for (const auto& ranks : whole)
    if (inside.front().size() * across.front().size() != ranks.size() || !covers(inside, ranks) ||
        !covers(across, ranks))
      return false;
  for (const auto& row : inside)
    for (const auto& column : across) {
      int common = 0;
      for (const int rank : row)
        common += static_cast<int>(std::count(column.begin(), column.end(), rank));
      if (common > 1) return false;
    }
  return true;
}

struct Stage {
  Kind kind;
  const Instances* instances;
  double factor;  // of the original's bytes; kAnyFactor: there are none
};
constexpr double kAnyFactor = -1;

bool near(double a, double b) { return std::abs(a - b) <= kTiny * (1 + std::abs(b)); }

// Whether these collectives, one after the other, do what `kind` on `whole` does.
bool composes(Kind kind, const Instances& whole, const std::vector<Stage>& stages) {
  const auto is = [&](size_t i, Kind k, const Instances& on, double factor) {
    return stages[i].kind == k && *stages[i].instances == on &&
           (stages[i].factor == kAnyFactor || near(stages[i].factor, factor));
  };
  if (stages.size() == 1) return is(0, kind, whole, 1);
  if (stages.size() == 2 && kind == Kind::kAllReduce) {
    if (is(0, Kind::kReduceScatter, whole, 1) && is(1, Kind::kAllGather, whole, 1)) return true;
    return is(0, Kind::kReduce, whole, 1) && is(1, Kind::kBroadcast, whole, 1);
  }
  const bool outer_first = kind != Kind::kAllGather;  // the group that lies inside hosts
  const Instances& inside = *stages[outer_first ? 0 : 1].instances;
  const Instances& across = *stages[outer_first ? 1 : 0].instances;
  if (!is_grid(whole, inside, across)) return false;
  const double shard = 1.0 / static_cast<double>(inside.front().size());
  if (stages.size() == 2) {
    if (kind == Kind::kAllGather)
      return is(0, Kind::kAllGather, across, shard) && is(1, Kind::kAllGather, inside, 1);
    if (kind == Kind::kReduceScatter)
      return is(0, Kind::kReduceScatter, inside, 1) && is(1, Kind::kReduceScatter, across, shard);
    return kind == Kind::kAllToAll && is(0, kind, inside, 1) && is(1, kind, across, 1);
  }
  return kind == Kind::kAllReduce && stages.size() == 3 && is(0, Kind::kReduceScatter, inside, 1) &&
         is(1, Kind::kAllReduce, across, shard) && is(2, Kind::kAllGather, inside, 1);
}

class Comparison {
 public:
  Comparison(const Graph& original, const Graph& rewritten)
      : original_(original), rewritten_(rewritten), stages_(original.ops.size()) {
    for (size_t i = 0; i < rewritten.ops.size(); i++)
      for (const Share& share : rewritten.ops[i].shares) {
        if (share.origin < 0 || static_cast<size_t>(share.origin) >= original.ops.size())
          fail(ncclInternalError, "operation '{}' stands for nothing", rewritten.ops[i].id);
        stages_[static_cast<size_t>(share.origin)][share.stage].push_back(
            {share.low, share.high, static_cast<int>(i)});
      }
  }

  void check() {
    for (size_t i = 0; i < original_.ops.size(); i++) check_whole(i);
    for (size_t i = 0; i < original_.ops.size(); i++)
      for (const int before : original_.ops[i].after) check_dependency(before, static_cast<int>(i));
  }

 private:
  const Op& made(int op) const { return rewritten_.ops[static_cast<size_t>(op)]; }

  void check_whole(size_t i) {
    const Op& op = original_.ops[i];
    std::vector<Stage> kinds;
    int expected = 0;
    for (auto& [stage, pieces] : stages_[i]) {
      std::sort(pieces.begin(), pieces.end(),
                [](const Piece& a, const Piece& b) { return a.low < b.low; });
      double at = 0, us = 0;
      for (const Piece& piece : pieces) {
        if (!near(piece.low, at))
          fail(ncclInternalError, "the parts of operation '{}' overlap or leave a gap", op.id);
        at = piece.high;
        us += made(piece.op).us;
        if (made(piece.op).collective != made(pieces.front().op).collective)
          fail(ncclInternalError, "the parts of '{}' are of different kinds", op.id);
      }
      if (!near(at, 1) || stage != expected++)
        fail(ncclInternalError, "the parts of operation '{}' do not make up the whole", op.id);
      const Op& first = made(pieces.front().op);
      if (first.collective.has_value() != op.collective.has_value())
        fail(ncclInternalError, "operation '{}' became another kind", op.id);
      if (!op.collective) {
        if (us < op.us * (1 - kTiny))
          fail(ncclInternalError, "operation '{}' lost compute: {} us became {}", op.id, op.us, us);
        continue;
      }
      for (const Piece& piece : pieces)
        if (!near(factor_of(made(piece.op)), factor_of(first)))
          fail(ncclInternalError, "collective '{}' moves {} bytes, which is not its part of '{}'",
               made(piece.op).id, made(piece.op).bytes, op.id);
      kinds.push_back({*first.collective,
                       &rewritten_.groups[static_cast<size_t>(first.group)].instances,
                       factor_of(first)});
    }
    if (expected == 0) fail(ncclInternalError, "operation '{}' was lost", op.id);
    check_stages(op, stages_[i]);
    if (op.collective &&
        !composes(*op.collective, original_.groups[static_cast<size_t>(op.group)].instances, kinds))
      fail(ncclInternalError, "what became of '{}' does not do the same", op.id);
  }

  // The bytes of a collective per byte that its shares ask for.
  double factor_of(const Op& op) const {
    double asked = 0;
    for (const Share& share : op.shares)
      asked += (share.high - share.low) * original_.ops[static_cast<size_t>(share.origin)].bytes;
    if (asked <= 0 && op.bytes > 0)
      fail(ncclInternalError, "collective '{}' moves {} bytes, its originals none", op.id,
           op.bytes);
    return asked > 0 ? op.bytes / asked : kAnyFactor;
  }

  // A stage needs what the stage before it did for the same part.
  void check_stages(const Op& op, const Stages& stages) const {
    const std::vector<Piece>* before = nullptr;
    for (const auto& [stage, pieces] : stages) {
      for (const Piece& mine : pieces)
        for (size_t k = 0; before != nullptr && k < before->size(); k++) {
          const Piece& theirs = (*before)[k];
          if (theirs.low < mine.high - kTiny && theirs.high > mine.low + kTiny &&
              !follows(mine.op, theirs.op))
            fail(ncclInternalError, "stage '{}' of '{}' does not wait for '{}'", made(mine.op).id,
                 op.id, made(theirs.op).id);
        }
      before = &pieces;
    }
  }

  void check_dependency(int before, int after) {
    const Op &u = original_.ops[static_cast<size_t>(before)],
             &v = original_.ops[static_cast<size_t>(after)];
    const bool alike = !u.axis.empty() && u.axis == v.axis;
    const auto& sinks = stages_[static_cast<size_t>(before)].rbegin()->second;
    for (const Piece& mine : stages_[static_cast<size_t>(after)].begin()->second)
      for (const Piece& theirs : sinks)
        if (!alike || (theirs.low < mine.high - kTiny && theirs.high > mine.low + kTiny))
          if (mine.op != theirs.op && !follows(mine.op, theirs.op))
            fail(ncclInternalError, "'{}' no longer waits for '{}'", made(mine.op).id,
                 made(theirs.op).id);
  }

  bool follows(int later, int earlier) const {
    std::vector<int> open = {later};
    std::set<int> seen;
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (const int before : made(at).after) {
        if (before == earlier) return true;
        if (seen.insert(before).second) open.push_back(before);
      }
    }
    return false;
  }

  const Graph &original_, &rewritten_;
  std::vector<Stages> stages_;  // per original operation
};

// The parts of a call follow each other, with no other call of the communicator between them.
void check_parts(const Graph& graph, const std::vector<int>& calls) {
  const Op* last = nullptr;
  for (const int number : calls) {
    const Op& op = graph.ops[static_cast<size_t>(number)];
    const bool open = last != nullptr && last->part + 1 < last->parts;
    const bool fits = op.part == 0 ? !open
                                   : open && op.part == last->part + 1 && op.parts == last->parts &&
                                         op.call_bytes == last->call_bytes;
    if (!fits) fail(ncclInternalError, "part '{}' is out of order in its call", op.id);
    last = &op;
  }
}

// A communicator is a group on a stream. All of its ranks call it in the same order: actors are
// compared by the streams that they see.
void check_call_order(const Graph& graph) {
  const Actors actors = actors_of(graph);
  std::map<std::pair<int, std::string>, std::map<int, std::vector<int>>> calls;
  for (size_t i = 0; i < graph.ops.size(); i++)
    if (graph.ops[i].collective)
      for (const int actor : actors.of(graph.ops[i]))
        calls[{graph.ops[i].group, graph.ops[i].stream}][actor].push_back(static_cast<int>(i));
  for (const auto& [communicator, by_actor] : calls) check_parts(graph, by_actor.begin()->second);
  for (const auto& [communicator, by_actor] : calls)
    for (const auto& [actor, mine] : by_actor)
      if (mine != by_actor.begin()->second)
        fail(ncclInternalError, "rank {} calls group '{}' in another order than its peers",
             actors.ranks[static_cast<size_t>(actor)].front(),
             graph.groups[static_cast<size_t>(communicator.first)].name);
}

}  // namespace

void check_rewritten(const Graph& original, const Graph& rewritten) {
  Comparison(original, rewritten).check();
  check_call_order(rewritten);
  (void)order_of(rewritten, rewritten.name);
}

}  // namespace weft::workload
