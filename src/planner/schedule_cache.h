// Schedules made for a machine. Fetches them from the cache folder, or synthesizes and stores them.
// The key is the machine's fingerprint, the order of its GPUs and links, what steps cost, and
// Weft's version. For rank 0 at init. Thread-safe, and safe beside other processes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/planner/imported_schedules.h"
#include "src/simulator/lane_cut.h"
#include "src/topology/graph/machine.h"

namespace weft {

// The name of the machine's folder in the cache.
std::string plan_key(const Machine& machine);

// Whether executors can run it: its messages must fit into the FIFOs.
using ScheduleTest = std::function<bool(const ImportedSchedule&)>;

struct MadeSchedules {
  std::shared_ptr<const ImportedSchedules> schedules;
  int fetched = 0, made = 0;  // from the cache, and from the synthesizer
  int left = 0;               // not made for lack of time
  int cut_short = 0;          // of these, with more time there might be better ones
  bool completes = false;     // a thread goes on for the cache
  double seconds = 0;
  uint64_t fingerprint = 0;  // of all wanted schedules, whether they fit or not
};

// The time that synthesis may take at init: WEFT_SYNTHESIS_SECONDS, or a default if it is below
// zero.
double synthesis_seconds(const Config& config, const Machine& machine);

struct SynthesisTime {
  double seconds = 0;         // no schedule is begun after this, and each gets its share
  double most_seconds = 1e9;  // then the caller goes on with those that are made
  bool background = false;    // a thread completes the cache (WEFT_BACKGROUND_SYNTHESIS)
};

// Schedules for all GPUs of the machine, made in parallel on all cores. Schedules for large arrays
// come first. With more than 32 GPUs and less than kPatientSeconds, there is no search: only the
// first possible schedules for large arrays, the same every time. All serve
// out-of-place calls, most of them calls in place too, and `fits` accepts them. An unusable cache
// file is logged and made again. A folder that cannot be written gives one log line.
// `costs`: GPUs run them as lanes.
//
// Those that the cache has are read and proved at once; known_schedules() gives them as they are.
MadeSchedules schedules_for(const Config& config, const Machine& machine,
                            const std::optional<LaneCosts>& costs, const SynthesisTime& time,
                            const ScheduleTest& fits);

// A schedule as the cache has it, not proved. It may be anything.
struct KnownSchedule {
  std::string title;
  Collective collective;  // that it should be of
  std::string text;
};

// The schedules that schedules_for() would fetch.
struct KnownSchedules {
  std::vector<KnownSchedule> all;
  int cut_short = 0, left = 0;  // as in MadeSchedules
  int missing = 0;              // schedules_for() would search for them
  // Of MadeSchedules, if a schedules_for() with as much time found none of the missing ones.
  uint64_t fingerprint = 0;
};
KnownSchedules known_schedules(const Config& config, const Machine& machine,
                               const std::optional<LaneCosts>& costs, const SynthesisTime& time);

// Lets a thread go on for the cache where it should. Whether one does.
bool complete_cache_later(const Config& config, const Machine& machine,
                          const std::optional<LaneCosts>& costs, const SynthesisTime& time);

// Proves one. Throws Error if it is of another collective, or cannot be used.
std::shared_ptr<const ImportedSchedule> prove_known(const KnownSchedule& known,
                                                    const ScheduleTest& fits);

}  // namespace weft
