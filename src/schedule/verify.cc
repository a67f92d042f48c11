// Combines the proofs: structure, order, symbolic execution, races.
#include "src/schedule/verify.h"

#include "src/base/error.h"
#include "src/schedule/ordering.h"
#include "src/schedule/run_order.h"
#include "src/schedule/symbolic.h"

namespace weft {

VerifiedSchedule verify(Schedule schedule, bool in_place, int fifo_depth) {
  return verify(std::make_shared<const Schedule>(std::move(schedule)), in_place, fifo_depth);
}

VerifiedSchedule verify(std::shared_ptr<const Schedule> schedule, bool in_place, int fifo_depth) {
  VerifiedSchedule verified;
  verified.schedule_ = std::move(schedule);
  verified.in_place_ = in_place;
  verified.fifo_depth_ = fifo_depth;
  const Schedule& s = *verified.schedule_;
  try {
    if (fifo_depth < 1) fail(ncclInvalidUsage, "FIFOs of {} messages", fifo_depth);
    verified.graph_ = std::make_shared<const ScheduleGraph>(s, in_place);
    const ScheduleGraph& graph = *verified.graph_;
    verified.order_ = run_order(graph, fifo_depth);
    // Check races first: with a race, the content of a chunk in one order proves nothing.
    check_ordering(graph, verified.order_);
    SymbolicResult result = execute_symbolically(graph, verified.order_, fifo_depth);
    verified.uniform_only_ = result.uniform_only;
    verified.passes_ = result.passes;
    verified.facts_ = std::move(result.facts);
    for (size_t r = 0; r < s.ranks.size(); r++)
      verified.first_lane_.push_back(static_cast<size_t>(graph.first_lane[r]));
    for (const auto& lane : graph.lanes)
      verified.first_step_.push_back(static_cast<size_t>(lane.first_step));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("schedule '{}' ({}, {} ranks, {}) refused: {}", s.name,
                                          name(s.collective.kind), s.collective.nranks,
                                          in_place ? "in place" : "out of place", error.what()));
  }
  return verified;
}

std::vector<bool> VerifiedSchedule::lendable(int rank) const {
  return lendable_steps(*graph_, order_, rank);
}

int VerifiedSchedule::least_fifo_depth() const { return weft::least_fifo_depth(*graph_); }

}  // namespace weft
