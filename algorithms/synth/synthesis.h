// Synthesis: the best schedule for a machine, a collective and a size. Runs the engines that apply,
// simulates what they make, proves the best and reports it against the bound. Slow; for set-up and
// tools. Pure functions.
//
// An engine is a row of a table: what it can do, and a list of candidates, the most promising
// first. Candidates are made one after the other until one is good enough, so that the others cost
// nothing. Engines live in algorithms/synth and know nothing of each other.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/machine.h"

namespace weft {

struct SynthesisOptions {
  std::string engine;         // by name; empty: whichever is best
  std::string sketch;         // a file, for engines that take one
  double time_limit_s = 60;   // no new candidate is begun after this; solvers get what is left
  double good_enough = 0.99;  // of the bound: nothing else is tried then; few ranks get closer
  // Take the first candidate of the first engine for such things that can be made quickly, as it
  // is: not simulated, not compared with the bound, not proved. The work is bounded, so that it is
  // the same every time. For callers in a hurry, who prove what they use anyway.
  bool first = false;
  std::function<void(const std::string&)> progress;  // one line at a time, may be empty
  SimulationOptions simulation;
};

struct SynthesisTask {
  const Machine& machine;
  const Collective& collective;
  double bytes = 0;  // of the whole array
  const SynthesisOptions& options;
  double seconds_left = 0;
  double reached = 0;  // of the bound by the best candidate so far
};

struct SynthesisEngine {
  std::string_view name, summary;
  bool (*supports)(const SynthesisTask& task);
  // Each makes one schedule, or throws an Error that says why not. The schedule's name is set by
  // synthesize().
  std::vector<std::function<Schedule()>> (*candidates)(const SynthesisTask& task);
};

// In the order in which they are asked.
const std::vector<SynthesisEngine>& synthesis_engines();

struct Synthesized {
  Schedule schedule;
  std::string engine;
  double seconds = 0;  // to make candidates, to choose and to prove
  double time_us = 0, algbw_gbps = 0;
  bool estimated = false;            // by a percent where it is near the bound, by more elsewhere
  double bound_gbps = 0, ratio = 0;  // of the bound; 0 where there is none
  int channels = 0;                  // FIFOs between two ranks at most
  int lanes = 0;                     // of a rank at most
  int64_t steps = 0;
  bool verified = false, in_place = false;  // out of place always; in_place: for such calls too
  bool cut_short = false;                   // with more time there might be a better one
};

// The same for the same input, to the last byte, as long as the time limit is not reached. Throws
// Error in one line where no engine can do it, and says what each of them said.
Synthesized synthesize(const Machine& machine, const Collective& collective, double bytes,
                       const SynthesisOptions& options = {});

}  // namespace weft
