// Predicts how long a Schedule takes on a Machine, without running it: a deterministic simulation
// of every message over every link it crosses.
//
// The model, in the alpha-beta terms of TACCL and TE-CCL:
// - A message of b bytes occupies a link for b / bandwidth and reaches the next one a latency
// later.
//   It is cut through: its first byte enters the next link before its last byte has left this one,
//   so alone it takes the sum of latencies plus b / the least bandwidth of its route.
// - A FIFO's messages take the widest way of routes.h, or the one that Schedule::routes names.
// - A link serves one message at a time in the order of their arrival. Ports are links: whatever
//   leaves a GPU for its switch shares that link. Switches store without limit. No link ever
//   carries more than its bandwidth, so no simulation beats the bounds of bounds.h.
// - Executors cut chunks into slices and run the whole program once per slice, as MSCCL does; so
// does
//   the simulation. Messages are slices.
// - A lane does one step at a time. A step begins when the step before it, its dependencies and its
//   messages are there and its FIFOs have room; it ends, after a fixed overhead, when its data has
//   left the GPU. Its messages' places in the FIFO are free again at that moment.
// - Schedules that reach into peers' memory run once. Such a step moves its data in pieces of a
// slice,
//   as many under way as a FIFO holds messages; reading and writing overlap, and the step ends when
//   all of it has arrived. The bytes cross the same links; asking for them costs nothing.
// - Local copies and reductions cost only the overhead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/schedule/schedule_graph.h"
#include "src/topology/graph/flow_graph.h"
#include "src/topology/graph/machine.h"
#include "src/topology/graph/routes.h"

namespace weft {

struct SimulationOptions {
  int fifo_depth = 8;            // messages
  double slice_bytes = 65536;    // most of a chunk that one message carries per chunk it moves
  int most_slices = 256;         // larger slices rather than more of them
  double most_messages = 1e300;  // in all slices together; the same
  double step_us = 0;            // overhead of every step, per slice of an executor
  double message_us = 0;         // and of every message that a rank sends or receives in it
  double node_message_us = 0;    // that a CPU node does
  double receive_us_mb = 0;      // and of every megabyte (1e6 bytes) that a rank receives
  // Simulate no more slices than it takes to see that they come at an even pace; the others are
  // taken to go on like that, which they nearly always do. For those who compare many schedules.
  bool estimate = false;
  // An estimate far above this need not be a good one, and tells nothing but the time.
  double beyond_us = 1e300;
  bool record = false;  // keep the timeline and the critical path
};

// One step of one lane at work on one slice.
struct StepSpan {
  int32_t step = 0;  // ScheduleGraph's number
  int32_t slice = 0;
  double begin_us = 0, end_us = 0;
  int32_t cause = -1;  // the span that it waited for last, -1 for none
};

// A message on a link.
struct LinkSpan {
  int32_t link = 0;         // of the machine
  int32_t span = 0;         // the StepSpan that sent it
  int32_t destination = 0;  // rank
  double begin_us = 0, end_us = 0;
};

struct LinkUse {
  int32_t link = 0;
  double busy_us = 0;
  double bytes = 0;
};

struct Simulation {
  double time_us = 0;
  double algbw_gbps = 0;          // size of the whole array over time
  int slices = 1, simulated = 1;  // fewer in an estimate
  bool even = true;               // false: an estimate from slices that never came at an even pace
  uint64_t events = 0;
  std::vector<LinkUse> links;  // those used, busiest first

  // Only where asked for.
  std::vector<StepSpan> steps;      // step s at slice k has number k * (steps in the schedule) + s
  std::vector<LinkSpan> transfers;  // in order of their begin
  std::vector<int32_t> critical;    // StepSpans, each waiting for the one before; the last one ends
};

// A machine made ready for many simulations, one at a time: ways between GPUs are looked up once.
// The machine must outlive it.
struct SimulatedMachine {
  explicit SimulatedMachine(const Machine& of)
      : machine(of), ways(flow_graph(of)), routes(ways.machine) {}
  SimulatedMachine(const SimulatedMachine&) = delete;
  SimulatedMachine& operator=(const SimulatedMachine&) = delete;

  const Machine& machine;
  const FlowGraph ways;  // has the machine's links, by the same numbers
  Routes routes;
};

// `bytes` is the size of the whole array, as in nccl-tests. Rank r sits on the machine's r-th GPU;
// a schedule that has CPU nodes needs a machine of with_cpu_nodes() (cpu_nodes.h).
// Throws Error(ncclInvalidUsage) when the schedule is ill-formed, gets stuck, needs more GPUs than
// there are, or sends where no way leads without another GPU as a relay.
Simulation simulate(const Machine& machine, const Schedule& schedule, double bytes,
                    const SimulationOptions& options = {});
Simulation simulate(SimulatedMachine& machine, const ScheduleGraph& graph, double bytes,
                    const SimulationOptions& options = {});

// The schedule's steps by number, whether it is for calls in place or out of place.
ScheduleGraph step_graph(const Schedule& schedule);

// Bytes of one block of the schedule's buffers, of an array of that size.
double block_bytes(const Collective& collective, double bytes);

// "g0->nvs0"
std::string link_name(const Machine& machine, int link);

}  // namespace weft
