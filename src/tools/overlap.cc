// weft overlap: how much of a workload's communication is exposed, and how to hide it.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/tools/answers.h"
#include "src/tools/commands.h"
#include "src/workload/graph_json.h"
#include "src/workload/import.h"
#include "src/workload/passes.h"
#include "src/workload/plan.h"
#include "src/workload/timeline_views.h"

namespace weft {
namespace {

namespace wl = workload;
constexpr size_t kShownPath = 10, kShownLinks = 5;

struct OverlapArguments {
  std::string graph, topo, trace, plan, svg, out;
  std::vector<std::string> passes;
  int ranks = 1;
  bool recost = false, json = false;
};

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) fail(ncclSystemError, "{}: cannot be written", path);
}

// The critical path in parts: neighbours of one phase and kind together.
struct PathPiece {
  std::string what;
  double us = 0;
  int spans = 0;
};

std::vector<PathPiece> path_pieces(const wl::Graph& graph, const wl::Timeline& line) {
  std::vector<PathPiece> pieces;
  double last = 0;
  for (const int number : line.critical) {
    const wl::Span& span = line.spans[static_cast<size_t>(number)];
    const wl::Op& op = graph.ops[static_cast<size_t>(span.op)];
    const std::string what =
        fmt::format("{} {}", wl::name_of(op.phase),
                    op.collective ? std::string(name(*op.collective)) : "compute");
    if (pieces.empty() || pieces.back().what != what) pieces.push_back({what});
    pieces.back().us += span.end_us - std::max(last, span.begin_us);
    pieces.back().spans++;
    last = span.end_us;
  }
  return pieces;
}

void print_line(const char* title, const wl::Graph& graph, const wl::Timeline& line,
                const Machine& machine) {
  fmt::print("{:<8}{:>10}  compute {}, communication {}, of it exposed {} ({:.1f}%)\n", title,
             duration(line.us), duration(line.compute_us), duration(line.comm_us),
             duration(line.exposed_us), 100 * line.exposed_us / std::max(1e-9, line.us));
  for (const auto& [kind, us] : line.exposed_by_kind)
    fmt::print("{:<20}exposed {} {}\n", "", name(kind), duration(us));
  fmt::print("{:<20}busiest links", "");
  for (size_t i = 0; i < line.link_busy_us.size() && i < kShownLinks; i++)
    fmt::print("{} {} {:.0f}%", i > 0 ? "," : "", link_name(machine, line.link_busy_us[i].first),
               100 * line.link_busy_us[i].second / line.us);
  fmt::print("\n");
  (void)graph;
}

void print_text(const wl::Search& search, const wl::Timeline& before, const Machine& machine,
                const std::string& about) {
  const wl::Graph& graph = search.original();
  fmt::print("{}: {} operations of {} ranks on {}\n", graph.name.empty() ? "workload" : graph.name,
             graph.ops.size(), graph.nranks, machine.name);
  if (!graph.source.empty()) fmt::print("source: {}\n", graph.source);
  if (!about.empty()) fmt::print("{}\n", about);
  print_line("before", graph, before, machine);
  if (!search.tried().empty()) {
    print_line("after", search.best(), search.timeline(), machine);
    fmt::print(
        "{:<8}{:>9.3f}x  exposed communication {:+.1f}%\n\nwhat was tried\n", "speedup",
        before.us / search.timeline().us,
        before.exposed_us > 0 ? 100 * (search.timeline().exposed_us / before.exposed_us - 1) : 0.0);
    for (const wl::Tried& each : search.tried())
      fmt::print("{} {:<9} {:>10} exposed {:>10}  {}\n", each.taken ? "*" : " ", each.pass,
                 duration(each.us), duration(each.exposed_us), each.what);
  }
  for (const std::string& note : search.notes()) fmt::print("note: {}\n", note);
  auto pieces = path_pieces(search.best(), search.timeline());
  std::map<std::string, PathPiece> sums;
  for (const PathPiece& piece : pieces) {
    sums[piece.what].us += piece.us;
    sums[piece.what].spans += piece.spans;
  }
  fmt::print("\ncritical path\n");
  for (const auto& [what, piece] : sums)
    fmt::print("  {:>10}  {} ({} operations)\n", duration(piece.us), what, piece.spans);
  fmt::print("  it begins with");
  for (size_t i = 0; i < pieces.size() && i < kShownPath; i++)
    fmt::print("{} {} {}", i > 0 ? "," : "", pieces[i].what, duration(pieces[i].us));
  fmt::print("\n");
}

nlohmann::ordered_json timeline_json(const wl::Timeline& line) {
  nlohmann::ordered_json out = {{"time_us", number(line.us)},
                                {"compute_us", number(line.compute_us)},
                                {"comm_us", number(line.comm_us)},
                                {"exposed_us", number(line.exposed_us)}};
  out["exposed_by_kind"] = nlohmann::ordered_json::object();
  for (const auto& [kind, us] : line.exposed_by_kind)
    out["exposed_by_kind"][std::string(name(kind))] = number(us);
  return out;
}

void print_json(const wl::Search& search, const wl::Timeline& before, const std::string& about) {
  nlohmann::ordered_json out = {{"name", search.original().name},
                                {"ranks", search.original().nranks},
                                {"operations", search.original().ops.size()}};
  if (!about.empty()) out["imported"] = about;
  out["before"] = timeline_json(before);
  out["after"] = timeline_json(search.timeline());
  out["speedup"] = number(before.us / search.timeline().us);
  out["tried"] = nlohmann::ordered_json::array();
  for (const wl::Tried& each : search.tried())
    out["tried"].push_back({{"pass", each.pass},
                            {"what", each.what},
                            {"time_us", number(each.us)},
                            {"exposed_us", number(each.exposed_us)},
                            {"taken", each.taken}});
  out["critical_path"] = nlohmann::ordered_json::array();
  for (const PathPiece& piece : path_pieces(search.best(), search.timeline()))
    out["critical_path"].push_back(
        {{"what", piece.what}, {"us", number(piece.us)}, {"operations", piece.spans}});
  out["notes"] = search.notes();
  fmt::print("{}\n", out.dump());
}

std::vector<const wl::Pass*> named_passes(const std::vector<std::string>& names) {
  std::vector<const wl::Pass*> chosen;
  for (const std::string& each : names) {
    if (each == "none") continue;
    const wl::Pass* pass = wl::find_pass(each);
    if (pass == nullptr) {
      std::string known;
      for (const wl::Pass& one : wl::passes()) known += fmt::format(" {}", one.name);
      fail(ncclInvalidArgument, "there is no pass '{}'; there are:{} none", each, known);
    }
    chosen.push_back(pass);
  }
  return chosen;
}

void answer(const OverlapArguments& arguments) {
  const auto chosen = named_passes(arguments.passes);
  std::string about;
  wl::Graph graph = wl::load_graph(arguments.graph, about, arguments.ranks);
  if (arguments.recost)
    for (wl::Op& op : graph.ops)
      if (op.collective) op.us = 0;
  const Machine machine = load_machine(arguments.topo);
  const size_t available = gpus(machine).size();
  if (static_cast<size_t>(graph.nranks) > available)
    fail(ncclInvalidArgument, "{}: has {} ranks; {} has {} GPUs", arguments.graph, graph.nranks,
         arguments.topo, available);
  wl::CommCosts costs(machine);
  wl::Search search(graph, costs);
  const wl::Timeline before = search.timeline();
  for (const wl::Pass* pass : chosen) {
    search.begin_pass(pass->name);
    pass->run(search);
  }
  if (!arguments.trace.empty()) {
    std::ofstream file(arguments.trace);
    wl::write_trace(machine, search.best(), search.timeline(), costs, file);
    file.close();
    if (!file) fail(ncclSystemError, "{}: cannot be written", arguments.trace);
  }
  if (!arguments.plan.empty())
    write_file(arguments.plan, plan_to_json(wl::plan_of(search.best(), search.timeline())));
  if (!arguments.out.empty()) write_file(arguments.out, wl::graph_to_json(search.best()));
  if (!arguments.svg.empty())
    write_file(arguments.svg, wl::timelines_svg(graph, before, search.best(), search.timeline()));
  if (arguments.json)
    print_json(search, before, about);
  else
    print_text(search, before, machine, about);
}

}  // namespace

void add_overlap(Command& program) {
  Command command =
      program.add_command("overlap", "how much communication compute hides, and how to hide more");
  const auto arguments = std::make_shared<OverlapArguments>();
  std::string names;
  for (const wl::Pass& pass : wl::passes())
    names += fmt::format("{}{} ({})", names.empty() ? "" : "; ", pass.name, pass.summary);
  command
      .add_option("GRAPH", arguments->graph,
                  "a workload: our JSON, a PyTorch profiler trace, or a Chakra trace")
      .required();
  command.add_option("TOPO", arguments->topo, "a machine: a file, or a name such as dgx-h100x2")
      .required();
  command.add_option("--passes", arguments->passes, "in this order, separated by commas: " + names)
      .separated_by(',');
  command.add_option("--trace", arguments->trace, "timeline for Perfetto, after the passes");
  command.add_option("--plan", arguments->plan, "the calls, for perf/overlap_perf");
  command.add_option("--svg", arguments->svg, "picture of the timelines before and after");
  command.add_option("-o,--output", arguments->out, "the graph after the passes");
  command.add_option("--ranks", arguments->ranks, "of a Chakra trace, which does not say it")
      .between(1, 1 << 16);
  command.add_flag("--recost", arguments->recost,
                   "ignore measured times of collectives: the simulator says them");
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { answer(*arguments); });
}

}  // namespace weft
