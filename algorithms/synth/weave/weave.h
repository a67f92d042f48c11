// The last stage of synthesis: turns the transfers that an engine chose into a Schedule of lanes,
// channels and steps. Pure functions.
//
// - Every pair of ranks and physical path gets one FIFO (all_reduce: one for each of its two
//   halves), so channels tell apart paths between the same ranks; Schedule::routes says which.
// - A piece is received and passed on in one step where that does not hold up other data: a FIFO
//   that sends joins the lane of the FIFO that most of its data comes from, as long as the lane is
//   not busy for longer than the busiest link is. Everything else is ordered by dependencies.
// - Steps are listed by Transfer::begin_us, as far as that lets the schedule run with FIFOs of
//   kWovenFifoDepth messages.
// - Transfers of neighbouring pieces over the same path with the same begin_us, which lie side by
//   side at both ends, travel as one message.
// - Reductions are the mirror of gathering: the same lanes, every step turned round, in the
//   opposite order. All_reduce chains both per piece.
#pragma once

#include <string>

#include "algorithms/synth/routing/transfers.h"
#include "src/schedule/schedule.h"
#include "src/topology/graph/machine.h"

namespace weft {

inline constexpr int kWovenFifoDepth = 8;

struct WeaveOptions {
  std::string name = "synth";
  // Tells how long links are busy; without it all links count as equally fast.
  const Machine* machine = nullptr;
  // False: every FIFO has its own lane, nothing is passed on in the step that receives it.
  bool fuse = true;
  // With fuse = false: FIFOs that leave a GPU over the same link share a lane, so that messages
  // leave in exactly the order of begin_us (for what reduces: in the opposite order). For plans
  // that are tight; a late message then holds up others.
  bool ports = false;
  // With ports, for what reduces: all that arrives over one link is received by one lane, which
  // adds up what comes from several ranks in one step. Fewer lanes, which wait more.
  bool shared = false;
  // True: what a rank sends of its own, what it passes on at the second hop of its way, at the
  // third and so on go through FIFOs and lanes of their own. Lanes then never wait for each other
  // in circles, so that latency costs no throughput; there are more of them.
  bool by_hops = false;
  // How many times the lanes exist: chunk c of every block goes through those of c % instances.
  // While the lanes of one instance wait for data, those of another use the link.
  int instances = 1;
};

// Throws Error(ncclInvalidUsage) for transfers that no schedule can follow: a piece that is sent
// before it has come, or comes twice. verify() sees whether all that is needed comes.
Schedule weave(const Routing& routing, const WeaveOptions& options = {});

// For plans with no time to lose: messages leave in the order that the transfers say.
WeaveOptions tight_weaving(const Machine& machine);

}  // namespace weft
