// The last stage of synthesis: turns an engine's transfers into a Schedule of lanes, channels and
// steps. Pure functions.
//
// - Every pair of ranks and physical path gets one FIFO (all_reduce: one for each half). So
//   channels distinguish paths between the same ranks; Schedule::routes says which.
// - One step receives and passes on a piece if that does not hold up other data. A FIFO that sends
//   joins the lane of the FIFO that brings most of its data, unless the lane would be busy for
//   longer than the busiest link. Dependencies order everything else.
// - Steps are sorted by Transfer::begin_us, as far as the schedule can run with FIFOs of
//   kWovenFifoDepth messages.
// - Transfers of neighbouring pieces over the same path with the same begin_us, contiguous at both
//   ends, travel as one message.
// - Reductions mirror gathering: the same lanes with every step reversed, in the opposite order.
//   All_reduce chains both per piece.
#pragma once

#include <string>

#include "algorithms/synth/routing/transfers.h"
#include "src/schedule/schedule.h"
#include "src/topology/graph/machine.h"

namespace weft {

inline constexpr int kWovenFifoDepth = 8;

struct WeaveOptions {
  std::string name = "synth";
  // Gives the bandwidth of links; without it all links count as equally fast.
  const Machine* machine = nullptr;
  // False: every FIFO has its own lane. No step both receives and passes on.
  bool fuse = true;
  // With fuse = false: FIFOs that leave a GPU over the same link share a lane, so messages leave
  // exactly in the order of begin_us (reductions: in the opposite order). For tight plans. A late
  // message then holds up others.
  bool ports = false;
  // With ports, for reductions: one lane receives everything that arrives over one link. It adds up
  // data from several ranks in one step. There are fewer lanes, and they wait more.
  bool shared = false;
  // True: a rank's own data, data at its second hop, at its third hop and so on each have their own
  // FIFOs and lanes. Then lanes never wait for each other in circles, so latency costs no
  // throughput. There are more lanes.
  bool by_hops = false;
  // Number of copies of the lanes: chunk c of every block goes through copy c % instances. While
  // the lanes of one copy wait for data, those of another use the link.
  int instances = 1;
};

// Throws Error(ncclInvalidUsage) for transfers that no schedule can follow: a piece that is sent
// before it arrives, or arrives twice. verify() checks that all needed pieces arrive.
Schedule weave(const Routing& routing, const WeaveOptions& options = {});

// For tight plans: messages leave in the order of the transfers.
WeaveOptions tight_weaving(const Machine& machine);

}  // namespace weft
