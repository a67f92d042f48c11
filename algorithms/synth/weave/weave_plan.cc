// See weave_plan.h.
#include "algorithms/synth/weave/weave_plan.h"

#include <algorithm>
#include <unordered_map>

#include "algorithms/synth/weave/step_order.h"

namespace weft {

double seconds_per_byte(const Machine* machine, int32_t link) {
  return machine == nullptr ? 1.0 : 1.0 / machine->links[static_cast<size_t>(link)].gbps;
}

int32_t Pieces::count() const {
  const int n = collective.nranks;
  switch (collective.kind) {
    case CollectiveKind::kBroadcast:
      return chunks;
    case CollectiveKind::kAllToAll:
      return n * n * chunks;
    default:
      return n * chunks;
  }
}

int32_t Pieces::origin(int32_t piece) const {
  switch (collective.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return collective.root;
    case CollectiveKind::kAllToAll:
      return piece / chunks / collective.nranks;
    default:
      return piece / chunks;
  }
}

bool Pieces::needed(int32_t piece, int32_t rank) const {
  switch (collective.kind) {
    case CollectiveKind::kGather:
      return rank == collective.root;
    case CollectiveKind::kScatter:
      return rank == piece / chunks;
    case CollectiveKind::kAllToAll:
      return rank == piece / chunks % collective.nranks;
    default:
      return true;
  }
}

bool Pieces::contiguous(int32_t piece, int32_t rank) const {
  const int32_t next = piece + 1;
  if (next >= count()) return false;
  if (piece / chunks == next / chunks) return true;
  const bool here = origin(piece) == rank;
  if (here != (origin(next) == rank)) return false;
  if (here) return true;
  const bool output = needed(piece, rank);
  return output == needed(next, rank) &&
         (!output || collective.kind == CollectiveKind::kAllGather ||
          collective.kind == CollectiveKind::kGather);
}

double busiest_link(const Machine* machine, const Routing& routing) {
  std::unordered_map<int32_t, double> load;
  double most = 0;
  for (const auto* transfers : {&routing.transfers, &routing.reduction})
    for (const Transfer& t : *transfers)
      for (const int32_t l : t.links)
        most = std::max(most, load[l] += seconds_per_byte(machine, l));
  return most;
}

WovenPlan plan_lanes(const Pieces& pieces, const std::vector<Transfer>& transfers,
                     const LaneOptions& options) {
  WovenMessages formed = form_messages(pieces, transfers, options);
  const ChosenLanes lanes =
      choose_lanes(formed, static_cast<size_t>(pieces.collective.nranks), options);
  return order_steps(pieces, formed, lanes, options.mirrored_ports());
}

}  // namespace weft
