// Inside weave(): from transfers to lanes of steps, in three stages: messages.h, lanes.h,
// step_order.h. It knows no buffers; weave.cc writes the steps.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/routing/transfers.h"
#include "src/topology/graph/machine.h"

namespace weft {

// The pieces: which rank has each at the start, and which ranks need it.
struct Pieces {
  Collective collective;  // gathering: the mirror of a collective that reduces
  int32_t chunks = 1;
  int32_t count() const;
  int32_t origin(int32_t piece) const;
  bool needed(int32_t piece, int32_t rank) const;
  // Whether the piece lies directly before the next one in the buffer of `rank`.
  bool contiguous(int32_t piece, int32_t rank) const;
};

// One step of a lane with pieces first..first+count-1. It receives them (or has them from the
// start) and sends them on, or only sends them.
struct WovenStep {
  int32_t first = 0, count = 1;
  int32_t in = -1;            // FIFO that brings them, -1: the rank has them
  bool begins = true;         // false: sends pieces that another step has received
  int64_t position = 0;       // in an order in which all steps can run
  std::vector<int32_t> outs;  // FIFOs
};

struct WovenFifo {
  int32_t from = 0, to = 0;
  int32_t group = 0;  // FIFOs of different groups share no lane
  std::vector<int32_t> links;
};

struct WovenPlan {
  std::vector<WovenFifo> fifos;
  std::vector<std::vector<std::vector<WovenStep>>> lanes;  // per rank
};

double seconds_per_byte(const Machine* machine, int32_t link);

// Busy time per byte of the busiest link, in any unit, from all transfers together.
double busiest_link(const Machine* machine, const Routing& routing);

struct LaneOptions {
  const Machine* machine = nullptr;
  double budget = 0;  // the longest that a lane may be busy, in the unit of busiest_link()
  bool fuse = true;
  bool ports = false;  // see WeaveOptions
  bool by_hops = false;
  bool shared = false;
  int instances = 1;
  bool whole_trees = false;  // pieces travel together all the way or not at all
  // In the mirrored plan arriving data is sent, so there arriving FIFOs share lanes.
  bool mirrored_ports() const { return ports && !fuse && whole_trees; }
};

WovenPlan plan_lanes(const Pieces& pieces, const std::vector<Transfer>& transfers,
                     const LaneOptions& options);

}  // namespace weft
