// weft explain: which plan is chosen at which size, and the cost of the others.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/comm/cluster.h"
#include "src/comm/rank_config.h"
#include "src/exec/cuda/block_share.h"
#include "src/planner/plan_chooser.h"
#include "src/tools/answers.h"
#include "src/tools/asked_ranks.h"
#include "src/tools/coded_answers.h"
#include "src/tools/commands.h"
#include "src/tools/explain_gpus.h"
#include "src/topology/graph/network.h"
#include "src/topology/graph/rank_machine.h"

namespace weft {
namespace {

constexpr int kUnknownCores = 64;  // assumed for other machines
constexpr int kOwnBlocks = cuda::kOwnGpuBlocks;

struct ExplainArguments {
  std::string topo, collective;
  uint64_t size = 0;
  int ranks = 0, hosts = 1;
  bool processes = false, on_gpus = false, json = false;
};

nlohmann::ordered_json to_json(const PlanChooser& chooser, int ranks, CollectiveKind kind,
                               uint64_t size) {
  const SelectionTable& table = chooser.agreed().table;
  nlohmann::ordered_json out;
  out["collective"] = name(kind);
  out["machine"] = table.machine;
  out["costs"] = table.origin;
  if (chooser.goes_by_rules()) out["decided_by"] = "rules";
  uint64_t least = 0;
  for (const SelectionTable::Range& range : table.ranges(kind)) {
    const PlanOption& option = table.options[static_cast<size_t>(range.option)];
    out["ranges"].push_back({{"from", least},
                             {"to", range.most_bytes},
                             {"plan", option.name},
                             {"channels", option.channels},
                             {"lanes", option.lanes}});
    least = range.most_bytes + 1;
  }
  if (size > 0) {
    const PlanCall call = PlanCall::of_size({kind, ranks, 0}, size);
    out["size"] = size;
    out["plan"] = chooser.choose(call).name;
    if (const double us = chooser.estimate_us(call); us > 0) out["time_us"] = number(us);
  }
  for (const PlanOption& option : table.options) {
    if (option.kind != kind) continue;
    nlohmann::ordered_json entry = {{"plan", option.name}};
    if (size > 0 && !option.us.empty())
      entry["time_us"] = number(SelectionTable::estimate(option, static_cast<double>(size)));
    if (!option.barred.empty()) entry["not_chosen"] = option.barred;
    out["options"].push_back(entry);
  }
  return out;
}

void print(const PlanChooser& chooser, int ranks, CollectiveKind kind, uint64_t size) {
  const SelectionTable& table = chooser.agreed().table;
  fmt::print("{}; {}\n", table.machine, table.origin);
  if (!table.via_host.empty()) fmt::print("through host memory: {}\n", table.via_host);
  if (chooser.goes_by_rules()) fmt::print("simple rules decide; the table says what plans cost\n");
  if (size > 0) {
    const Choice choice = chooser.choose(PlanCall::of_size({kind, ranks, 0}, size));
    fmt::print("{} of {} bytes takes {}\n{}", name(kind), size, choice.name,
               describe_options(table, kind, size, chooser.option_of(choice, kind)));
    return;
  }
  const std::string ranges = describe_ranges(table, kind);
  fmt::print("{}", ranges.empty() ? "no table: simple rules decide\n" : ranges);
  for (const PlanOption& option : table.options)
    if (option.kind == kind && !option.barred.empty())
      fmt::print("{} is not chosen: {}\n", option.name, option.barred);
}

AskedRanks asked_about(const ExplainArguments& arguments) {
  AskedRanks asked;
  asked.on_gpus = arguments.on_gpus;
  asked.processes = arguments.processes;
  Config config = Config::from_environment();
  if (!arguments.topo.empty()) config.topo = arguments.topo;
  const HostReport here = read_host_report(describe_host(config), 0);
  asked.machine = here.machine;
  asked.cores = here.cores;
  asked.hosts = arguments.hosts;
  // As for a communicator on that machine.
  if (arguments.on_gpus && !config.topo.empty()) {
    asked.machine = load_machine(config.topo);
    asked.cores = kUnknownCores;
    asked.elsewhere = true;
    config.topo.clear();
  }
  if (arguments.on_gpus && gpus(asked.machine).empty())
    fail(ncclInvalidUsage, "there is no GPU: name a machine that has some");
  if (arguments.on_gpus) {
    if (arguments.hosts > 1) asked.machine = replicate(asked.machine, arguments.hosts);
    asked.hosts = std::max(1, count_hosts(asked.machine));
  }
  asked.ranks = arguments.ranks;
  if (asked.ranks == 0 && arguments.on_gpus)
    asked.ranks = static_cast<int>(gpus(asked.machine).size());
  if (asked.ranks == 0)
    asked.ranks = config.topo.empty() ? std::max(2, asked.cores)
                                      : static_cast<int>(gpus(load_machine(config.topo)).size());
  asked.own_gpus = arguments.on_gpus && asked.ranks > 1 &&
                   static_cast<size_t>(asked.ranks) <= gpus(asked.machine).size();
  if (asked.own_gpus) {
    // The first GPUs of every host, as many on each.
    std::vector<int> places;
    const auto n = static_cast<size_t>(asked.ranks), h = static_cast<size_t>(asked.hosts);
    std::vector<size_t> taken(h, 0);
    for (const int gpu : gpus(asked.machine)) {
      size_t& mine = taken[static_cast<size_t>(
          std::max(0, asked.machine.nodes[static_cast<size_t>(gpu)].host))];
      if (places.size() < n && mine++ < (n + h - 1) / h) places.push_back(gpu);
    }
    asked.machine = reduce_to(asked.machine, places);
  }
  asked.config = rank_config(config, asked.ranks, arguments.on_gpus);
  return asked;
}

// What the machine decides about all calls, or calls of one kind or size.
void answer_for_gpus(const ExplainArguments& arguments, const AskedRanks& asked,
                     const PlanChooser& chooser) {
  const int blocks =
      asked.config.max_ctas > 0 ? std::min(asked.config.max_ctas, kOwnBlocks) : kOwnBlocks;
  const GpuExplanation on{chooser, asked.machine, blocks};
  const auto named = collective_named(arguments.collective);
  if (named && arguments.size > 0) {
    const std::vector<CodedCandidate> coded =
        coded_candidates(asked.config, peer_ways(asked.machine), {*named, asked.ranks, 0},
                         static_cast<double>(arguments.size), true);
    if (!arguments.json) {
      print_call(on, *named, arguments.size);
      return print(coded, true);
    }
    nlohmann::ordered_json out = to_json(chooser, asked.ranks, *named, arguments.size);
    out.update(explain_call(on, *named, arguments.size));
    for (const CodedCandidate& candidate : coded) out["compressed"].push_back(to_json(candidate));
    fmt::print("{}\n", out.dump());
    return;
  }
  for (int k = 0; k < kCollectiveKinds; k++) {
    const auto kind = static_cast<CollectiveKind>(k);
    if (kind == CollectiveKind::kSendRecv || (named && *named != kind)) continue;
    if (arguments.json) {
      fmt::print("{}\n", to_json(chooser, asked.ranks, kind, 0).dump());
    } else {
      print_sizes(on, kind);
    }
  }
  if (!arguments.json) print_notes(on);
}

// What host mode emulates (WEFT_TOPO): the first GPUs of that machine.
Machine emulated_by(const AskedRanks& asked) {
  const Machine machine = load_machine(asked.config.topo);
  std::vector<int> places = gpus(machine);
  places.resize(static_cast<size_t>(asked.ranks));
  return reduce_to(machine, places);
}

void answer(const ExplainArguments& arguments) {
  if (arguments.collective.empty() && !arguments.on_gpus)
    fail(ncclInvalidUsage, "--coll is missing: which collective?");
  const AskedRanks asked = asked_about(arguments);
  const Config& config = asked.config;
  const std::unique_ptr<const PlanChooser> plans = plans_of(asked);
  const PlanChooser& chooser = *plans;
  if (asked.own_gpus && chooser.placement().lanes) {
    answer_for_gpus(arguments, asked, chooser);
    return;
  }
  if (arguments.collective.empty()) fail(ncclInvalidUsage, "--coll is missing: which collective?");
  const CollectiveKind kind = *collective_named(arguments.collective);
  const std::vector<CodedCandidate> coded = coded_candidates(
      config, asked.machine, {kind, asked.ranks, 0}, static_cast<double>(arguments.size), false);
  const bool emulates = !arguments.on_gpus && !config.topo.empty() && arguments.size > 0;
  const Machine emulated = emulates ? emulated_by(asked) : Machine();
  const GpuExplanation on{chooser, emulated, 0};
  if (arguments.json) {
    nlohmann::ordered_json out = to_json(chooser, asked.ranks, kind, arguments.size);
    if (emulates) out.update(explain_call(on, kind, arguments.size));
    for (const CodedCandidate& candidate : coded) out["compressed"].push_back(to_json(candidate));
    fmt::print("{}\n", out.dump());
  } else {
    if (emulates) {
      print_call(on, kind, arguments.size);
    } else {
      print(chooser, asked.ranks, kind, arguments.size);
    }
    print(coded, false);
  }
}

}  // namespace

void add_explain(Command& program) {
  Command command =
      program.add_command("explain", "which plan at which size, and what the others would cost");
  const auto arguments = std::make_shared<ExplainArguments>();
  command.add_option("TOPO", arguments->topo, "a machine; without it host memory, on this one");
  command.add_option("--coll", arguments->collective, "collective; with --gpus all without it")
      .collective();
  command.add_option("--size", arguments->size, "bytes of the whole array; K, M, G").in_bytes();
  command.add_option("--ranks", arguments->ranks, "ranks; without it all GPUs, or all cores")
      .between(2, 4096);
  command.add_option("--hosts", arguments->hosts, "hosts like this one that share the ranks")
      .between(1, 4096);
  command.add_flag("--processes", arguments->processes, "ranks are processes, not threads");
  command.add_flag("--gpus", arguments->on_gpus,
                   "ranks are on GPUs, one each while there are enough; see NCCL_P2P_DISABLE");
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { answer(*arguments); });
}

}  // namespace weft
