// See engine.h.
#include "algorithms/synth/flow/engine.h"

#include <memory>
#include <optional>

#include "algorithms/synth/flow/flow.h"
#include "algorithms/synth/weave/weave.h"
#include "src/base/error.h"

namespace weft {
namespace {

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

// Splits every piece in two, for two instances of the lanes.
Routing halved(const Routing& routing) {
  Routing halves{routing.collective, routing.chunks * 2, {}, {}};
  for (const Transfer& whole : routing.transfers)
    for (const int half : {0, 1}) {
      halves.transfers.push_back(whole);
      halves.transfers.back().piece = whole.piece * 2 + half;
    }
  return halves;
}

// Relayed data should not hold up a rank's own data. So some variants have lanes per hop, with
// relays spread over many ranks or as they are. One has two instances of such lanes. Others have
// lanes per pair of ranks.
std::vector<std::function<Schedule()>> flow_candidates(const SynthesisTask& task) {
  struct Variant {
    bool spread, by_hops, twice, fuse;
  };
  struct Routings {
    std::optional<Routing> first, spread;
  };
  auto routings = std::make_shared<Routings>();
  std::vector<std::function<Schedule()>> candidates;
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
      WeaveOptions weaving = tight_weaving(task.machine);
      weaving.by_hops = v.by_hops;
      weaving.fuse = v.fuse;
      weaving.ports = !v.twice;
      weaving.instances = v.twice ? 2 : 1;
      const Routing& routing = v.spread ? *spread : *first;
      return weave(v.twice ? halved(routing) : routing, weaving);
    });
  return candidates;
}

}  // namespace

SynthesisEngine flow_engine() {
  return {"flow", "every piece on the path that evens out the links", flow_applies,
          flow_candidates};
}

}  // namespace weft
