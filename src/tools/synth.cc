// weft synth: makes the best schedule for a machine, proves it and predicts its time.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "algorithms/catalogue/catalogue.h"
#include "algorithms/synth/synthesis.h"
#include "src/base/error.h"
#include "src/planner/gpu_rates.h"
#include "src/schedule/msccl_xml.h"
#include "src/schedule/schedule_json.h"
#include "src/simulator/lane_simulation.h"
#include "src/tools/answers.h"
#include "src/tools/coded_answers.h"
#include "src/tools/commands.h"
#include "src/topology/graph/rank_machine.h"

namespace weft {
namespace {

struct SynthArguments {
  std::string topo, collective, out, codec;
  uint64_t size = 0;
  int root = 0;
  SynthesisOptions options;
  bool gpus = false, json = false;
};

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void write(const std::string& path, const Synthesized& result) {
  ScheduleFile file;
  file.schedule = result.schedule;
  file.modes_declared = true;
  file.in_place = result.in_place;
  file.out_of_place = true;
  const std::string text =
      ends_with(path, ".xml") ? write_msccl_xml(file) : write_schedule_json(file);
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) fail(ncclSystemError, "{}: cannot be written", path);
}

void print(const SynthArguments& arguments, const Machine& machine, const Collective& collective,
           const Synthesized& result) {
  if (arguments.json) {
    nlohmann::ordered_json out;
    out["collective"] = name(collective.kind);
    out["size"] = arguments.size;
    out["ranks"] = collective.nranks;
    out["engine"] = result.engine;
    out["seconds"] = number(result.seconds);
    out["time_us"] = number(result.time_us);
    out["estimated"] = result.estimated;
    out["algbw_gbps"] = number(result.algbw_gbps);
    out["bound_gbps"] = number(result.bound_gbps);
    out["ratio"] = number(result.ratio);
    out["channels"] = result.channels;
    out["lanes"] = result.lanes;
    out["steps"] = result.steps;
    out["verified"] = result.verified;
    out["in_place"] = result.in_place;
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("{} of {} GPUs on {}, {} bytes\n", name(collective.kind), collective.nranks,
             machine.name, arguments.size);
  fmt::print("engine    {}, {:.3g} s, proved {}\n", result.engine, result.seconds,
             result.in_place ? "in place and out of place" : "out of place");
  fmt::print("time      {}{}\n", duration(result.time_us),
             result.estimated ? ", estimated: weft simulate tells exactly" : "");
  fmt::print("algbw     {:.4g} GB/s, {:.1f}% of the bound {:.4g} GB/s\n", result.algbw_gbps,
             100 * result.ratio, result.bound_gbps);
  fmt::print("schedule  {} steps, up to {} lanes a rank and {} channels a pair\n", result.steps,
             result.lanes, result.channels);
}

// With what steps cost on these GPUs, in the slices that the lane kernel would cut.
void judge_as_lanes(const Machine& machine, int nranks, SynthesisOptions& options) {
  const GpuRates rates = gpu_rates(machine, nullptr);
  options.lanes = usual_cut(count_hosts(machine) > 1);
  options.simulation = quick_lanes(lane_costs(options.simulation, rates), nranks);
}

void answer(SynthArguments& arguments) {
  if (!arguments.out.empty() && !ends_with(arguments.out, ".xml") &&
      !ends_with(arguments.out, ".json"))
    fail(ncclInvalidArgument, "{}: a schedule is written as .xml (MSCCL) or .json (Weft)",
         arguments.out);
  if (arguments.gpus && !arguments.codec.empty())
    fail(ncclInvalidArgument, "--gpus and --codec: what codecs cost in lanes is not known");
  const Machine whole = load_machine(arguments.topo);
  const Machine machine = arguments.gpus ? peer_ways(whole) : whole;
  const Collective collective{*collective_named(arguments.collective),
                              static_cast<int>(gpus(machine).size()), arguments.root};
  if (!arguments.codec.empty())
    return synthesize_coded({arguments.topo, arguments.codec, arguments.out, collective,
                             static_cast<double>(arguments.size), arguments.options.simulation,
                             arguments.json});
  if (arguments.gpus) judge_as_lanes(machine, collective.nranks, arguments.options);
  if (isatty(STDERR_FILENO) != 0)
    arguments.options.progress = [](const std::string& line) {
      fmt::print(stderr, "\r\x1b[K{}", line);
      std::fflush(stderr);
    };
  const auto clear = [&] {
    if (arguments.options.progress) fmt::print(stderr, "\r\x1b[K");
  };
  Synthesized result;
  try {
    result =
        synthesize(machine, collective, static_cast<double>(arguments.size), arguments.options);
  } catch (...) {
    clear();
    throw;
  }
  clear();
  if (!arguments.out.empty()) write(arguments.out, result);
  print(arguments, machine, collective, result);
}

}  // namespace

void add_synth(Command& program) {
  Command command = program.add_command("synth", "make the best schedule for a machine");
  const auto arguments = std::make_shared<SynthArguments>();
  command.add_option("TOPO", arguments->topo, "a machine: a file, or a name such as dgx-h100x2")
      .required();
  command.add_option("--coll", arguments->collective, "collective").required().collective();
  command.add_option("--size", arguments->size, "bytes of the whole array; K, M, G")
      .required()
      .in_bytes();
  command.add_option("--root", arguments->root, "of rooted collectives");
  command.add_option("--engine", arguments->options.engine, "use this engine only");
  command.add_option("--sketch", arguments->options.sketch, "what you know: a TACCL sketch");
  command.add_option("--codec", arguments->codec,
                     "compress links between hosts: int8, int4:block=128, fp8...");
  command.add_option("--time-limit", arguments->options.time_limit_s, "seconds to look for better")
      .between(0.0, 1e9)
      .with_default();
  command.add_option("-o,--output", arguments->out, "where to write the schedule, .xml or .json");
  command.add_flag("--gpus", arguments->gpus,
                   "judge with what steps cost on GPUs, not by links alone");
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { answer(*arguments); });
}

}  // namespace weft
