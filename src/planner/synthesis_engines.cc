// The table of synthesis engines.
#include <algorithm>
#include <memory>
#include <optional>

#include "algorithms/generators/generators.h"
#include "algorithms/synth/flow.h"
#include "algorithms/synth/forest.h"
#include "algorithms/synth/latency.h"
#include "algorithms/synth/weave.h"
#include "src/base/error.h"
#include "src/planner/synthesis.h"
#include "src/planner/taccl_engine.h"

namespace weft {
namespace {

// A generator's schedule has about as many steps as pairs of ranks: beyond this it helps nobody.
constexpr int kMostGeneratorRanks = 128;

// Smaller pieces of trees cost more than they bring.
constexpr double kLeastPiece = 4096;

// Programs that run more often than that spend most of the time neither filling nor emptying links.
constexpr double kManySlices = 8;

// A trial for so few costs next to nothing.
constexpr int kCheapRanks = 16;

// Lanes for every hop are many; more ranks that all are roots have instances instead.
constexpr int kMostHopLanes = 16;

// Fewer trees are preferred even if they cost so much throughput: of an all_reduce, whose trees are
// made, ordered and run twice. Where they do not reach what is asked, there are more.
constexpr double kLossForFewerTrees = 0.009, kReachedByFewerTrees = 0.98;

// What has one root only has few transfers, so trees may be many.
constexpr int kMostTreesOfARoot = 64;

// Where an all_reduce gets no further with shared lanes, others in the same pieces do not help.
constexpr double kNoHope = 0.97;

// More take longer to order, to write and to prove than those have time who want the first there
// is.
constexpr size_t kMostQuickTransfers = 20000;

using Candidates = std::vector<std::function<Schedule()>>;

// Lanes as executors run them best where a plan has no time to lose.
WeaveOptions tight(const SynthesisTask& task) {
  WeaveOptions weaving;
  weaving.machine = &task.machine;
  weaving.fuse = false;
  weaving.ports = true;
  return weaving;
}

bool forest_applies(const SynthesisTask& task) { return forest_supports(task.collective); }

// Several instances of the lanes hide the time that lanes wait for data, more pieces per tree the
// time that data travels. Only small schedules are worth several trials.
void add_forest(const SynthesisTask& task, const ForestOptions& growing, Candidates& candidates) {
  struct Variant {
    int pieces, instances;
    bool by_hops, shared;
  };
  const size_t most_transfers = task.collective.nranks > 32 ? 1 << 17 : 1 << 16;
  auto forest = std::make_shared<std::optional<Forest>>();
  auto trouble = std::make_shared<std::string>();
  const bool again = !candidates.empty();
  std::vector<Variant> variants{{1, 1, false, true},  {1, 1, false, false}, {2, 2, false, false},
                                {4, 2, false, false}, {4, 4, false, false}, {8, 8, false, true},
                                {4, 1, true, false},  {16, 1, true, false}};
  // What has one root only has few lanes, and most to gain where they do not wait for each other.
  if (task.collective.rooted()) std::rotate(variants.begin(), variants.end() - 2, variants.end());
  for (const Variant& v : variants) {
    if (v.shared && !task.collective.reduces()) continue;
    if (v.pieces > v.instances && !v.by_hops && task.collective.kind != CollectiveKind::kAllReduce)
      continue;
    if (v.by_hops && task.collective.nranks > kMostHopLanes && !task.collective.rooted()) continue;
    candidates.emplace_back([&task, growing, again, forest, trouble, v, most_transfers] {
      if (again && task.reached >= kReachedByFewerTrees)
        fail(ncclInvalidUsage, "fewer trees have reached {:.3f}", task.reached);
      if (!trouble->empty()) throw Error(ncclInvalidUsage, *trouble);  // the others do no better
      try {
        if (!*forest) *forest = grow_forest(task.machine, task.collective, growing);
      } catch (const Error& error) {
        *trouble = error.what();
        throw;
      }
      const size_t transfers = (*forest)->routed.size() * (*forest)->routed[0].edges.size();
      const size_t all = transfers * static_cast<size_t>(v.pieces);
      if (task.options.first && all > kMostQuickTransfers)
        fail(ncclInvalidUsage, "{} transfers, which take long to order and to prove", all);
      const double blocks = task.collective.rooted() ? 1 : task.collective.nranks;
      const double bytes = task.bytes / blocks / (*forest)->trees;
      const auto cut_too_small = [&](int pieces) {
        return pieces > 1 && (transfers * static_cast<size_t>(pieces) > most_transfers ||
                              bytes / pieces < kLeastPiece);
      };
      const bool whole = v.pieces == 1 && v.instances == 1;
      if (whole && !v.shared && task.collective.kind == CollectiveKind::kAllReduce &&
          task.reached > 0 && task.reached < kNoHope)
        fail(ncclInvalidUsage, "lanes that are shared have reached {:.2f}", task.reached);
      if (cut_too_small(v.pieces))
        fail(ncclInvalidUsage, "{} transfers of {:.0f} bytes, cut into {} pieces each", transfers,
             bytes, v.pieces);
      const bool large = task.collective.nranks > kCheapRanks &&
                         bytes > kManySlices * task.options.simulation.slice_bytes;
      if (v.pieces == 1 && large && !cut_too_small(2) && is_deep(**forest))
        fail(ncclInvalidUsage, "trees too deep for one instance of the lanes");
      WeaveOptions weaving = tight(task);
      weaving.by_hops = v.by_hops;
      weaving.shared = v.shared;
      weaving.instances = v.instances;
      const ForestCut cut{task.bytes, v.pieces, true, v.instances};
      return weave(forest_routing(task.machine, **forest, cut), weaving);
    });
  }
}

Candidates forest_candidates(const SynthesisTask& task) {
  Candidates candidates;
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

// The plans are for one size; beyond this one throughput is all that counts.
constexpr double kMostLatencyBytes = 64 << 20;

bool latency_applies(const SynthesisTask& task) {
  return forest_supports(task.collective) && task.bytes <= kMostLatencyBytes;
}

Candidates latency_candidates(const SynthesisTask& task) {
  LatencyOptions options;
  options.slice_bytes = task.options.simulation.slice_bytes;
  options.most_slices = task.options.simulation.most_slices;
  options.fifo_depth = task.options.simulation.fifo_depth;
  Candidates candidates;
  for (LatencyPlan& plan : latency_plans(task.machine, task.collective, task.bytes, options))
    candidates.emplace_back(
        [&task, routing = std::move(plan.routing)] { return weave(routing, tight(task)); });
  return candidates;
}

bool flow_applies(const SynthesisTask& task) {
  switch (task.collective.kind) {
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
      return true;
    default:
      return false;
  }
}

// Every piece cut into two, for as many instances of the lanes.
Routing halved(const Routing& routing) {
  Routing halves{routing.collective, routing.chunks * 2, {}, {}};
  for (const Transfer& whole : routing.transfers)
    for (const int half : {0, 1}) {
      halves.transfers.push_back(whole);
      halves.transfers.back().piece = whole.piece * 2 + half;
    }
  return halves;
}

// Where ranks pass on what others send, that shall not hold up their own: lanes per hop, for what
// comes from as many ranks as possible or as it is; or, where all of it has different ways, lanes
// of every pair of ranks, twice.
Candidates flow_candidates(const SynthesisTask& task) {
  struct Variant {
    bool spread, by_hops, twice, fuse;
  };
  struct Routings {
    std::optional<Routing> first, spread;
  };
  auto routings = std::make_shared<Routings>();
  Candidates candidates;
  for (const Variant& v : {Variant{false, false, false, false},
                           {true, true, false, false},
                           {false, true, false, false},
                           {false, true, true, false},
                           {false, false, false, true}})
    candidates.emplace_back([&task, routings, v] {
      auto& [first, spread] = *routings;
      if (!first) first = route_flow(task.machine, task.collective);
      if (v.spread && !spread) spread = spread_relays(task.machine, *first);
      if (v.spread && spread->transfers == first->transfers)
        fail(ncclInvalidUsage, "nothing relayed can be spread over more ranks");
      WeaveOptions weaving = tight(task);
      weaving.by_hops = v.by_hops;
      weaving.fuse = v.fuse;
      weaving.ports = !v.twice;
      weaving.instances = v.twice ? 2 : 1;
      const Routing& routing = v.spread ? *spread : *first;
      return weave(v.twice ? halved(routing) : routing, weaving);
    });
  return candidates;
}

bool generators_apply(const SynthesisTask& task) {
  return task.collective.nranks <= kMostGeneratorRanks;
}

Candidates generator_candidates(const SynthesisTask& task) {
  Candidates candidates;
  for (const Generator& generator : generators())
    if (generator.channels <= kUsualChannels && generator.supports(task.collective))
      candidates.emplace_back(
          [&task, &generator] { return generator.make(task.collective, false); });
  return candidates;
}

}  // namespace

const std::vector<SynthesisEngine>& synthesis_engines() {
  static const std::vector<SynthesisEngine> kEngines = {
      {"forest", "spanning trees packed to the optimum", forest_applies, forest_candidates},
      {"latency", "few hops and steps, planned for the size", latency_applies, latency_candidates},
      {"flow", "every piece on the path that evens out the links", flow_applies, flow_candidates},
      {"generators", "the schedules of weft generators", generators_apply, generator_candidates},
      taccl_engine(),
  };
  return kEngines;
}

}  // namespace weft
