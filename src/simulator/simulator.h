// Predicts how long a Schedule takes on a Machine, without running it: a deterministic simulation
// of every message over every link it crosses.
//
// The model, in the alpha-beta terms of TACCL and TE-CCL:
// - A message of b bytes occupies a link for b / bandwidth. Its bytes reach the next link one
//   latency later. Messages are cut through: the first byte enters the next link before the last
//   byte has left this one. A message alone takes the sum of latencies plus b / the least bandwidth
//   of its route.
// - A FIFO's messages take the route of highest bandwidth (routes.h), or the one in
//   Schedule::routes.
// - A link serves one message at a time, in order of arrival. Ports are links: all traffic from a
//   GPU to its switch shares that link. Switches buffer without limit. No link exceeds its
//   bandwidth, so no simulation beats the bounds of bounds.h.
// - Executors divide chunks into slices and run the whole program once per slice, as MSCCL does.
//   The simulation does the same. A message is a slice.
// - A lane runs one step at a time. A step begins when the step before it and its dependencies have
//   ended, its messages have arrived and its FIFOs have room. It has a fixed overhead and ends when
//   its data has left the GPU. Then the FIFO slots that it read are free again.
// - Schedules that access peer memory run once. Such a step moves its data in pieces of a slice,
//   with as many in flight as a FIFO holds messages. Reads and writes overlap. The step ends when
//   all data has arrived. The bytes cross the same links; a read request costs nothing.
// - Local copies and reductions cost only the overhead. Codecs cost time per byte of plain data
//   (SimulationOptions::codecs), and coded messages have their encoded size.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/schedule/schedule_graph.h"
#include "src/topology/graph/flow_graph.h"
#include "src/topology/graph/machine.h"
#include "src/topology/graph/routes.h"

namespace weft {

// Microseconds per megabyte (1e6 bytes) of plain data.
struct CodecCost {
  double encode_us_mb = 0, decode_us_mb = 0;
};

struct SimulationOptions {
  int fifo_depth = 8;            // messages
  double slice_bytes = 65536;    // at most, of every chunk that a message carries
  int most_slices = 256;         // above this, slices get larger instead
  int most_simulated = 1 << 30;  // slices; the others keep the pace of the last ones. At least 2
  double most_messages = 1e300;  // in all slices together; above this, slices get larger instead
  double step_us = 0;            // overhead per step and slice of the executor
  double message_us = 0;         // overhead per message that a rank sends or receives
  double node_message_us = 0;    // overhead per message of a CPU node
  double receive_us_mb = 0;      // overhead per megabyte (1e6 bytes) that a rank receives
  int element_bytes = 4;         // of plain data; decides how much smaller coded messages are
  std::array<CodecCost, kCodecs> codecs{};  // by Codec
  // Simulate slices only until their pace is even, and assume that the rest keep that pace. They
  // nearly always do. For callers that compare many schedules.
  bool estimate = false;
  // An estimate may be rough if it is far above this time. Then only the time is valid.
  double beyond_us = 1e300;
  bool record = false;  // keep the timeline and the critical path
};

// One step of one lane on one slice.
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
  int32_t destination = 0;  // a rank
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
  int slices = 1, simulated = 1;  // `simulated` is less in an estimate
  bool even = true;               // false: an estimate whose slices never came at an even pace
  uint64_t events = 0;
  std::vector<LinkUse> links;  // the links used, busiest first

  // Only with SimulationOptions::record.
  std::vector<StepSpan> steps;      // step s at slice k has number k * (steps in the schedule) + s
  std::vector<LinkSpan> transfers;  // in order of their begin
  std::vector<int32_t> critical;    // StepSpans; each waited for the one before it, and the last
                                    // ends last
};

// A machine prepared for many simulations, one at a time. It caches the routes between GPUs. The
// machine must outlive it.
struct SimulatedMachine {
  explicit SimulatedMachine(const Machine& of)
      : machine(of), ways(flow_graph(of)), routes(ways.machine) {}
  SimulatedMachine(const SimulatedMachine&) = delete;
  SimulatedMachine& operator=(const SimulatedMachine&) = delete;

  const Machine& machine;
  const FlowGraph ways;  // has the machine's links with the same numbers
  Routes routes;
};

// `bytes` is the size of the whole array, as in nccl-tests. Rank r sits on the machine's r-th GPU.
// A schedule with CPU nodes needs a machine from with_cpu_nodes() (cpu_nodes.h). Throws
// Error(ncclInvalidUsage) when the schedule is ill-formed, gets stuck, needs more GPUs than there
// are, or sends between GPUs that only another GPU connects.
Simulation simulate(const Machine& machine, const Schedule& schedule, double bytes,
                    const SimulationOptions& options = {});
Simulation simulate(SimulatedMachine& machine, const ScheduleGraph& graph, double bytes,
                    const SimulationOptions& options = {});

// The schedule's steps by number. Works for schedules of in-place and of out-of-place calls.
ScheduleGraph step_graph(const Schedule& schedule);

// Bytes of one block of the schedule's buffers, for an array of `bytes`.
double block_bytes(const Collective& collective, double bytes);

// "g0->nvs0"
std::string link_name(const Machine& machine, int link);

}  // namespace weft
