// libweft-synthesis.so synthesizes schedules for libnccl.so.2, which loads it to plan for a machine
// with known links (algorithms/synth/synthesis_abi.h).
#include "algorithms/synth/synthesis.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "algorithms/synth/synthesis_abi.h"
#include "src/base/error.h"
#include "src/schedule/schedule_json.h"
#include "src/simulator/lane_simulation.h"
#include "src/topology/formats/machine_json.h"

namespace weft {
namespace {

std::string synthesize_text(const char* machine_text, const char* collective_name, double bytes,
                            const LaneCosts* costs, double seconds, bool& cut_short) {
  const Machine machine = machine_from_json(machine_text, "the machine");
  const auto kind = parse_collective(collective_name);
  if (!kind) fail(ncclInvalidArgument, "'{}' is no collective", collective_name);
  SynthesisOptions options;
  options.time_limit_s = seconds;
  options.first = seconds <= 0;
  const auto nranks = static_cast<int>(gpus(machine).size());
  if (costs != nullptr) {
    options.lanes = costs->cut;
    options.simulation = quick_lanes(options.simulation, nranks);
    options.simulation.step_us = costs->step_us;
    options.simulation.message_us = costs->message_us;
  }
  Synthesized made = synthesize(machine, {*kind, nranks, 0}, bytes, options);
  cut_short = made.cut_short;
  ScheduleFile file;
  file.schedule = std::move(made.schedule);
  file.modes_declared = made.verified;
  file.in_place = made.in_place || !made.verified;
  file.out_of_place = true;
  return write_schedule_json(file);
}

}  // namespace
}  // namespace weft

extern "C" [[gnu::visibility("default")]] int weft_synthesize_v3(
    const char* machine, const char* collective, double bytes, const weft::LaneCosts* costs,
    double seconds, weft::ScheduleSink sink, void* context, char* why, size_t why_size) {
  try {
    bool cut_short = false;
    const std::string text =
        weft::synthesize_text(machine, collective, bytes, costs, seconds, cut_short);
    sink(context, text.c_str(), text.size());
    return cut_short ? weft::kSynthesisCutShort : weft::kSynthesized;
  } catch (const std::exception& error) {
    std::strncpy(why, error.what(), why_size - 1);
    why[why_size - 1] = '\0';
    return weft::kNotSynthesized;
  }
}

// A change to one side must change the other.
static_assert(std::is_same_v<decltype(&weft_synthesize_v3), weft::SynthesizeFunction>);
