// weft show: one page with the machine, the routes of the chunks and the timeline of a schedule.
#include <fmt/format.h>

#include <cmath>
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
#include "src/tools/show_page.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostSpans = 60'000;  // a browser draws this many without delay

struct ShowArguments {
  std::string schedule, topo, output, collective;
  uint64_t size = 1 << 20;
};

// The machine if none is named: all GPUs on one switch, or on one CPU if CPU nodes take part.
Machine plain_machine(int nranks, bool cpu) {
  Machine machine;
  machine.name = fmt::format("one {} (no machine was named)", cpu ? "CPU" : "switch");
  for (int r = 0; r < nranks; r++) {
    Node gpu;
    gpu.id = fmt::format("g{}", r);
    machine.nodes.push_back(gpu);
  }
  Node hub;
  hub.id = cpu ? "cpu" : "switch";
  hub.type = cpu ? NodeType::kCpu : NodeType::kSwitch;
  machine.nodes.push_back(hub);
  for (int r = 0; r < nranks; r++) connect(machine, r, nranks, LinkType::kOther, 100, 0.5);
  return machine;
}

int64_t nanoseconds(double us) { return std::llround(us * 1000); }

void add_machine(Json& data, const Machine& machine, const Simulation& simulation) {
  std::vector<double> use(machine.links.size(), 0.0);
  for (const LinkUse& link : simulation.links)
    use[static_cast<size_t>(link.link)] = link.busy_us / simulation.time_us;
  int rank = 0;
  for (const Node& node : machine.nodes) {
    Json out = {{"id", node.id}, {"type", name_of(node.type)}, {"host", node.host}};
    if (node.type == NodeType::kGpu) out["rank"] = rank++;
    data["nodes"].push_back(std::move(out));
  }
  for (size_t l = 0; l < machine.links.size(); l++) {
    const Link& link = machine.links[l];
    data["links"].push_back({link.from, link.to, link.gbps, link.us, use[l]});
  }
}

// Only a proof knows which data a step handles.
void add_steps(Json& data, const ScheduleGraph& graph, const VerifiedSchedule* proof) {
  for (const ScheduleGraph::LaneRef& lane : graph.lanes)
    data["lanes"].push_back({lane.rank, lane.lane});
  for (size_t n = 0; n < graph.steps.size(); n++) {
    const StepId id = graph.id(static_cast<int32_t>(n));
    const Step& step = *graph.steps[n];
    const bool known = proof != nullptr && step.count > 0 && !step.from.empty();
    data["steps"].push_back({graph.step_lane[n], id.step, short_text(step),
                             known ? proof->facts(id.rank, id.lane, id.step).piece : -1,
                             step.count});
  }
}

void add_timeline(Json& data, const Simulation& simulation) {
  for (const StepSpan& span : simulation.steps)
    data["spans"].push_back({nanoseconds(span.begin_us), nanoseconds(span.end_us), span.cause});
  for (const LinkSpan& t : simulation.transfers)
    data["transfers"].push_back(
        {t.link, t.span, t.destination, nanoseconds(t.begin_us), nanoseconds(t.end_us)});
  data["critical"] = simulation.critical;
}

std::string replaced(std::string text, std::string_view mark, std::string_view with) {
  const size_t at = text.find(mark);
  return text.replace(at, mark.size(), with);
}

std::string page_of(const Json& data) {
  // The data must not end the script element that holds it.
  std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos;) text.replace(at, 2, "<\\/");
  std::string page = replaced(kShowPage, "/*STYLE*/", kShowStyle);
  page = replaced(page, "/*SCRIPT*/", kShowScript);
  return replaced(page, "/*DATA*/", text);
}

void answer(const ShowArguments& arguments) {
  const ScheduleFile file =
      load_schedule(arguments.schedule, collective_named(arguments.collective));
  const Schedule& schedule = file.schedule;
  const Machine found = arguments.topo.empty()
                            ? plain_machine(schedule.collective.nranks, schedule.cpu_nodes > 0)
                            : load_machine(arguments.topo);
  const Machine machine = with_cpu_nodes(found, schedule);
  const ScheduleGraph graph = step_graph(schedule);
  SimulationOptions options;
  options.record = true;
  options.most_slices =
      std::clamp(kMostSpans / std::max(1, static_cast<int>(graph.steps.size())), 1, 64);
  const Simulation simulation =
      simulate(machine, schedule, static_cast<double>(arguments.size), options);

  Json data = {{"name", schedule.name},
               {"collective", name(schedule.collective.kind)},
               {"ranks", schedule.collective.nranks},
               {"chunks", schedule.chunks},
               {"machine", machine.name},
               {"size", arguments.size},
               {"time", nanoseconds(simulation.time_us)},
               {"algbw", simulation.algbw_gbps},
               {"bound", number(throughput_bound(found, schedule.collective).algbw_gbps)},
               {"slices", simulation.slices},
               {"banner", ""}};
  for (const char* list : {"nodes", "links", "lanes", "steps", "spans", "transfers"})
    data[list] = Json::array();
  std::shared_ptr<const VerifiedSchedule> proof;
  try {
    const ProvedFile proved = prove(file, options.fifo_depth);
    proof = proved.in_place ? proved.in_place : proved.out_of_place;
  } catch (const Error& error) {
    data["banner"] = fmt::format("Not proved, so chunks cannot be followed: {}", error.what());
  }
  add_machine(data, machine, simulation);
  add_steps(data, graph, proof.get());
  add_timeline(data, simulation);

  std::ofstream out(arguments.output, std::ios::binary);
  out << page_of(data);
  out.close();
  if (!out) fail(ncclSystemError, "{}: cannot be written", arguments.output);
}

}  // namespace

void add_show(Command& program) {
  Command command = program.add_command("show", "draw a schedule: machine, chunk routes, timeline");
  const auto arguments = std::make_shared<ShowArguments>();
  command.add_option("SCHEDULE", arguments->schedule, "MSCCL XML or Weft JSON").required();
  command.add_option("TOPO", arguments->topo,
                     "a machine: a file, or a name such as ndv2x2; none: GPUs on one switch");
  command.add_option("-o,--output", arguments->output, "the page, an HTML file").required();
  command.add_option("--size", arguments->size, "bytes of the whole array; K, M, G")
      .in_bytes()
      .with_default();
  command.add_option("--coll", arguments->collective, "the collective, where the file lacks it")
      .collective();
  command.calls([arguments] { answer(*arguments); });
}

}  // namespace weft
