// How the lane kernel would cut a call, for predictions: src/exec/cuda/lane_geometry.h decides it
// when the call runs. That may take more instances so that blocks are equally busy, which changes
// what a pass moves by little. Pure functions.
#pragma once

#include "src/schedule/schedule_graph.h"

namespace weft {

// What a rank has. The defaults are those of the settings.
struct LaneCut {
  int blocks = 32;  // thread blocks
  double fifo_bytes = 1 << 20;
  double pool_bytes = 32 << 20;  // for FIFOs
  bool shared_pool = true;       // with scratch chunks, which take half of it
  int slots = 4;
};

// What a call of lanes costs, beside its data.
struct LaneCosts {
  LaneCut cut;
  double step_us = 0, message_us = 0;  // SimulationOptions
};

// Of a rank whose peers are on several hosts or on one.
LaneCut usual_cut(bool several_hosts);

// The instances of a lane: as many as there are blocks for, while messages are large enough.
double lane_instances(const LaneCut& cut, const Schedule& schedule, double chunk_bytes);
// At least 1. Lanes of a block take turns.
double lanes_per_block(const LaneCut& cut, const Schedule& schedule);
// The bytes of a chunk that all of them move in one pass over the program.
double bytes_per_pass(const LaneCut& cut, const ScheduleGraph& graph, double chunk_bytes);

}  // namespace weft
