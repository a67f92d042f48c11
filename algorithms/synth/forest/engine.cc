// See engine.h.
#include "algorithms/synth/forest/engine.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "algorithms/synth/forest/forest.h"
#include "algorithms/synth/weave/weave.h"
#include "src/base/error.h"

namespace weft {
namespace {

// Smaller pieces of trees cost more than they gain.
constexpr double kLeastPiece = 4096;

// Programs with more slices than this spend most of their time with full links.
constexpr double kManySlices = 8;

// A trial with so few ranks is cheap.
constexpr int kCheapRanks = 16;

// Lanes per hop are many. With more ranks, if all are roots, there are instances instead.
constexpr int kMostHopLanes = 16;

// An all_reduce makes, orders and runs its trees twice, so it prefers fewer trees at this loss of
// throughput. If they stay below kReachedByFewerTrees of the bound, it tries more trees.
constexpr double kLossForFewerTrees = 0.009, kReachedByFewerTrees = 0.98;

// Rooted collectives have few transfers, so they can have many trees.
constexpr int kMostTreesOfARoot = 64;

// If an all_reduce reaches less than this with shared lanes, separate lanes with the same pieces do
// not help.
constexpr double kNoHope = 0.97;

// For callers that want the first schedule, more transfers are refused: they take too long to
// order, write and prove.
constexpr size_t kMostQuickTransfers = 20000;

bool forest_applies(const SynthesisTask& task) { return forest_supports(task.collective); }

// How a forest becomes a schedule. Several instances of the lanes hide the time that lanes wait for
// data. More pieces per tree hide the latency of links.
struct Variant {
  int pieces, instances;
  bool by_hops, shared;
};

bool is_worth_trying(const Variant& v, const Collective& collective) {
  if (v.shared && !collective.reduces()) return false;
  if (v.pieces > v.instances && !v.by_hops && collective.kind != CollectiveKind::kAllReduce)
    return false;
  return !v.by_hops || collective.nranks <= kMostHopLanes || collective.rooted();
}

// One way to grow trees, shared by all variants. The first variant grows it.
class ForestTrial {
 public:
  ForestTrial(const SynthesisTask& task, const ForestOptions& growing, bool again)
      : task_(task), growing_(growing), again_(again) {}

  Schedule make(const Variant& v) {
    grow();
    refuse_if_hopeless(v);
    WeaveOptions weaving = tight_weaving(task_.machine);
    weaving.by_hops = v.by_hops;
    weaving.shared = v.shared;
    weaving.instances = v.instances;
    const ForestPieces cut{task_.bytes, v.pieces, true, v.instances};
    return weave(forest_routing(task_.machine, *forest_, cut), weaving);
  }

 private:
  void grow() {
    if (again_ && task_.reached >= kReachedByFewerTrees)
      fail(ncclInvalidUsage, "fewer trees have reached {:.3f}", task_.reached);
    if (!trouble_.empty()) throw Error(ncclInvalidUsage, trouble_);  // other variants fail too
    if (forest_) return;
    try {
      forest_ = grow_forest(task_.machine, task_.collective, growing_);
    } catch (const Error& error) {
      trouble_ = error.what();
      throw;
    }
  }

  size_t transfers() const { return forest_->routed.size() * forest_->routed[0].edges.size(); }

  // The bytes of one tree.
  double tree_bytes() const {
    const double blocks = task_.collective.rooted() ? 1 : task_.collective.nranks;
    return task_.bytes / blocks / forest_->trees;
  }

  bool too_small(int pieces) const {
    const size_t most_transfers = task_.collective.nranks > 32 ? 1 << 17 : 1 << 16;
    return pieces > 1 && (transfers() * static_cast<size_t>(pieces) > most_transfers ||
                          tree_bytes() / pieces < kLeastPiece);
  }

  // Weaving and simulating take time, so variants that cannot win are refused with a reason.
  void refuse_if_hopeless(const Variant& v) const {
    const size_t all = transfers() * static_cast<size_t>(v.pieces);
    if (task_.options.first && all > kMostQuickTransfers)
      fail(ncclInvalidUsage, "{} transfers, which take long to order and to prove", all);
    const bool whole = v.pieces == 1 && v.instances == 1;
    if (whole && !v.shared && task_.collective.kind == CollectiveKind::kAllReduce &&
        task_.reached > 0 && task_.reached < kNoHope)
      fail(ncclInvalidUsage, "lanes that are shared have reached {:.2f}", task_.reached);
    if (too_small(v.pieces))
      fail(ncclInvalidUsage, "{} transfers of {:.0f} bytes, cut into {} pieces each", transfers(),
           tree_bytes(), v.pieces);
    const bool large = task_.collective.nranks > kCheapRanks &&
                       tree_bytes() > kManySlices * task_.options.simulation.slice_bytes;
    if (v.pieces == 1 && large && !too_small(2) && is_deep(*forest_))
      fail(ncclInvalidUsage, "trees too deep for one instance of the lanes");
  }

  const SynthesisTask& task_;
  const ForestOptions growing_;
  const bool again_;  // fewer trees have been tried before
  std::optional<Forest> forest_;
  std::string trouble_;
};

void add_forest(const SynthesisTask& task, const ForestOptions& growing,
                std::vector<std::function<Schedule()>>& candidates) {
  const auto trial = std::make_shared<ForestTrial>(task, growing, !candidates.empty());
  std::vector<Variant> variants{{1, 1, false, true},  {1, 1, false, false}, {2, 2, false, false},
                                {4, 2, false, false}, {4, 4, false, false}, {8, 8, false, true},
                                {4, 1, true, false},  {16, 1, true, false}};
  // Rooted collectives have few lanes, and gain most if lanes do not wait for each other.
  if (task.collective.rooted()) std::rotate(variants.begin(), variants.end() - 2, variants.end());
  for (const Variant& v : variants)
    if (is_worth_trying(v, task.collective))
      candidates.emplace_back([trial, v] { return trial->make(v); });
}

std::vector<std::function<Schedule()>> forest_candidates(const SynthesisTask& task) {
  std::vector<std::function<Schedule()>> candidates;
  ForestOptions growing;
  growing.quick = task.options.first;
  if (task.collective.rooted()) growing.most_trees = kMostTreesOfARoot;
  if (task.collective.kind == CollectiveKind::kAllReduce) {
    ForestOptions few = growing;
    few.acceptable_loss = kLossForFewerTrees;
    add_forest(task, few, candidates);
  }
  add_forest(task, growing, candidates);
  return candidates;
}

}  // namespace

SynthesisEngine forest_engine() {
  return {"forest", "spanning trees packed to the optimum", forest_applies, forest_candidates};
}

}  // namespace weft
