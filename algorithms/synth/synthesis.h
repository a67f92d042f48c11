// Synthesis: the best schedule for a machine, a collective and a size. Runs the engines that apply,
// simulates their schedules, proves the best one and compares it with the bound. Slow; for set-up
// and tools. Pure functions.
//
// An engine is a row of a table: which tasks it supports, and a list of candidates, the most
// promising first. Candidates are made one after the other until one is good enough, so the rest
// cost nothing. Engines live in algorithms/synth and know nothing of each other.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/simulator/lane_cut.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct SynthesisOptions {
  std::string engine;         // by name; empty: the best of all
  std::string sketch;         // a file, for engines that accept one
  double time_limit_s = 60;   // no candidate begins after this; solvers get the rest
  double good_enough = 0.99;  // part of the bound at which the search stops; few ranks get closer
  // A schedule with more steps must be faster by this part. Without `lanes` it is not simulated
  // what steps cost beside their data, and never that data is summed in several steps instead of
  // one.
  double worth_more_steps = 0.001;
  // Return the first candidate that the first supporting engine can make quickly. It is not
  // simulated, not compared with the bound, not proved. The work is bounded, so the result is
  // always the same. For callers that have little time and prove the schedule anyway.
  bool first = false;
  std::function<void(const std::string&)> progress;  // one line at a time, may be empty
  SimulationOptions simulation;
  std::optional<LaneCut> lanes;  // GPUs run it as lanes: simulated as the lane kernel would cut it
};

struct SynthesisTask {
  const Machine& machine;
  const Collective& collective;
  double bytes = 0;  // of the whole array
  const SynthesisOptions& options;
  double seconds_left = 0;
  // Part of the bound that the best candidate reaches so far; 0: none, or not only links count.
  double reached = 0;
};

struct SynthesisEngine {
  std::string_view name, summary;
  bool (*supports)(const SynthesisTask& task);
  // Each makes one schedule, or throws an Error that says why not. synthesize() sets its name.
  std::vector<std::function<Schedule()>> (*candidates)(const SynthesisTask& task);
};

// In the order in which they run.
const std::vector<SynthesisEngine>& synthesis_engines();

struct Synthesized {
  Schedule schedule;
  std::string engine;
  double seconds = 0;  // to make candidates, to choose and to prove
  double time_us = 0, algbw_gbps = 0;
  bool estimated = false;            // off by a percent near the bound, by more elsewhere
  double bound_gbps = 0, ratio = 0;  // ratio: part of the bound; 0 without a bound
  int channels = 0;                  // most FIFOs between two ranks
  int lanes = 0;                     // most of a rank
  int64_t steps = 0;
  bool verified = false, in_place = false;  // verified: out of place; in_place: for in-place calls
                                            // too
  bool cut_short = false;                   // with more time there might be a better one
};

// Deterministic to the last byte, unless the time limit is reached. If no engine can do it, throws
// Error with one line that has every engine's reason.
Synthesized synthesize(const Machine& machine, const Collective& collective, double bytes,
                       const SynthesisOptions& options = {});

}  // namespace weft
