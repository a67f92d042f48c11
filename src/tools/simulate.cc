// weft simulate: predicts the time of a schedule on a machine.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "algorithms/bounds/bounds.h"
#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/schedule/schedule_file.h"
#include "src/simulator/cpu_nodes.h"
#include "src/simulator/simulation_trace.h"
#include "src/simulator/simulator.h"
#include "src/tools/answers.h"
#include "src/tools/commands.h"

namespace weft {
namespace {

constexpr size_t kBusiest = 8;

struct SimulateArguments {
  std::string topo, schedule, trace, collective;
  uint64_t size = 0, slice = 65536;
  SimulationOptions options;
  bool json = false;
};

void print_json(const Machine& machine, const Schedule& schedule, const Simulation& simulation,
                const Bound& bound) {
  nlohmann::ordered_json out;
  out["time_us"] = simulation.time_us;
  out["algbw_gbps"] = simulation.algbw_gbps;
  out["bound_gbps"] = number(bound.algbw_gbps);
  out["busiest"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < simulation.links.size() && i < kBusiest; i++)
    out["busiest"].push_back({{"link", link_name(machine, simulation.links[i].link)},
                              {"utilisation", simulation.links[i].busy_us / simulation.time_us}});
  out["collective"] = name(schedule.collective.kind);
  out["ranks"] = schedule.collective.nranks;
  out["slices"] = simulation.slices;
  out["events"] = simulation.events;
  out["critical_path"] = nlohmann::ordered_json::array();
  for (const PathPart& part : critical_parts(schedule, simulation))
    out["critical_path"].push_back({{"step", describe(part.first)},
                                    {"slices", part.spans},
                                    {"begin_us", part.begin_us},
                                    {"end_us", part.end_us}});
  fmt::print("{}\n", out.dump());
}

void print_text(const Machine& machine, const Schedule& schedule, const Simulation& simulation,
                const Bound& bound) {
  const int nranks = schedule.collective.nranks;
  const auto available = gpus(machine).size();
  fmt::print("{}: {} of {} ranks on {}{}\n", schedule.name, name(schedule.collective.kind), nranks,
             machine.name,
             schedule.cpu_nodes > 0 ? fmt::format(" with CPU nodes: {}", schedule.cpu_nodes)
             : static_cast<size_t>(nranks) < available
                 ? fmt::format(", its first {} of {} GPUs", nranks, available)
                 : "");
  fmt::print("time      {}\n", duration(simulation.time_us));
  fmt::print("algbw     {:.4g} GB/s, {:.1f}% of the bound {:.4g} GB/s{}\n", simulation.algbw_gbps,
             100 * simulation.algbw_gbps / bound.algbw_gbps, bound.algbw_gbps,
             schedule.cpu_nodes > 0 ? " where GPUs alone reduce" : "");
  fmt::print("busiest  ");
  for (size_t i = 0; i < simulation.links.size() && i < kBusiest; i++)
    fmt::print("{} {} {:.1f}%", i > 0 ? "," : "", link_name(machine, simulation.links[i].link),
               100 * simulation.links[i].busy_us / simulation.time_us);
  fmt::print("\ncritical path, what each step waited for being the one before it\n");
  const auto parts = critical_parts(schedule, simulation);
  constexpr size_t kEnds = 12;
  for (size_t i = 0; i < parts.size(); i++) {
    if (parts.size() > 2 * kEnds && i == kEnds) {
      fmt::print("  ... {} more ...\n", parts.size() - 2 * kEnds);
      i = parts.size() - kEnds;
    }
    fmt::print("  {:>10} .. {:<10} {}{}\n", duration(parts[i].begin_us), duration(parts[i].end_us),
               describe(parts[i].first),
               parts[i].spans > 1 ? fmt::format(", {} slices", parts[i].spans) : "");
  }
}

void answer(SimulateArguments& arguments) {
  arguments.options.slice_bytes = static_cast<double>(arguments.slice);
  arguments.options.record = true;
  const Schedule schedule =
      load_schedule(arguments.schedule, collective_named(arguments.collective)).schedule;
  const Machine found = load_machine(arguments.topo);
  const Machine machine = with_cpu_nodes(found, schedule);
  const Simulation simulation =
      simulate(machine, schedule, static_cast<double>(arguments.size), arguments.options);
  const Bound bound = throughput_bound(found, schedule.collective);
  if (!arguments.trace.empty()) {
    std::ofstream file(arguments.trace);
    write_trace(machine, schedule, simulation, file);
    file.close();
    if (!file) fail(ncclSystemError, "{}: cannot be written", arguments.trace);
  }
  if (arguments.json)
    print_json(machine, schedule, simulation, bound);
  else
    print_text(machine, schedule, simulation, bound);
}

}  // namespace

void add_simulate(Command& program) {
  Command command = program.add_command("simulate", "predict the time of a schedule on a machine");
  const auto arguments = std::make_shared<SimulateArguments>();
  command.add_option("TOPO", arguments->topo, "a machine: a file, or a name such as ndv2x2")
      .required();
  command.add_option("SCHEDULE", arguments->schedule, "MSCCL XML or Weft JSON").required();
  command.add_option("--size", arguments->size, "bytes of the whole array; K, M, G")
      .required()
      .in_bytes();
  command.add_option("--coll", arguments->collective, "the collective, where the file lacks it")
      .collective();
  command.add_option("--trace", arguments->trace, "timeline for chrome://tracing or Perfetto");
  command.add_option("--fifo-depth", arguments->options.fifo_depth, "messages a FIFO holds")
      .between(1, 1 << 20)
      .with_default();
  command.add_option("--slice", arguments->slice, "most bytes of a chunk a step moves at once")
      .in_bytes()
      .between(uint64_t{1}, uint64_t{1} << 40)
      .with_default();
  command.add_option("--step-us", arguments->options.step_us, "overhead of every step")
      .between(0.0, 1e6)
      .with_default();
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { answer(*arguments); });
}

}  // namespace weft
