// weft explain: which plan is chosen at which size, and the cost of the others.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/comm/cluster.h"
#include "src/comm/mesh.h"
#include "src/comm/rank_config.h"
#include "src/exec/cuda/host_fifo_fit.h"
#include "src/planner/plan_chooser.h"
#include "src/tools/answers.h"
#include "src/tools/commands.h"

namespace weft {
namespace {

constexpr int kUnknownCores = 64;  // assumed for other machines

struct ExplainArguments {
  std::string topo, collective;
  uint64_t size = 0;
  int ranks = 0, hosts = 1;
  bool processes = false, on_gpus = false, json = false;
};

// As a communicator of such ranks would be placed.
Placement placement_of(const ExplainArguments& arguments, const Config& config, int ranks,
                       const SelectionTable& table, const Machine& machine,
                       const std::vector<int>& hosts) {
  Placement placement;
  placement.one_process = !arguments.processes && arguments.hosts == 1;
  placement.one_host = arguments.hosts == 1;
  placement.peer_memory = arguments.on_gpus && placement.one_host && table.via_host.empty();
  placement.lanes = placement.peer_memory;
  placement.via_host = arguments.on_gpus && !placement.peer_memory;
  placement.together = placement.peer_memory && placement.one_process && gpus(machine).size() == 1;
  placement.multi_connection =
      !placement.one_host && uses_multi_connection(config, ranks, arguments.on_gpus);
  placement.hosts = hosts_of_hierarchy(hosts);
  return placement;
}

// Those of the environment, as communicators use them.
std::shared_ptr<const ImportedSchedules> imports(const Config& config, int ranks) {
  const bool named = !config.schedules.empty() || !config.msccl_xml_files.empty() ||
                     !config.msccl_algo_dir.empty();
  return named ? ImportedSchedules::load(config, ranks, true)
               : std::make_shared<const ImportedSchedules>();
}

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

void answer(const ExplainArguments& arguments) {
  Config config = Config::from_environment();
  if (!arguments.topo.empty()) config.topo = arguments.topo;
  HostReport here = read_host_report(describe_host(config), 0);
  // One GPU per rank, as for a communicator on that machine.
  if (arguments.on_gpus && !config.topo.empty()) {
    here.machine = load_machine(config.topo);
    here.cores = kUnknownCores;
    config.topo.clear();
  }
  int ranks = arguments.ranks;
  if (ranks == 0 && arguments.on_gpus) ranks = static_cast<int>(gpus(here.machine).size());
  if (ranks == 0)
    ranks = config.topo.empty() ? std::max(2, here.cores)
                                : static_cast<int>(gpus(load_machine(config.topo)).size());
  if (arguments.on_gpus && gpus(here.machine).empty())
    fail(ncclInvalidUsage, "there is no GPU: name a machine that has some");
  config = rank_config(config, ranks, arguments.on_gpus);
  HostSetting setting;
  setting.cores = here.cores;
  setting.one_process = !arguments.processes;
  setting.slice_bytes = static_cast<double>(std::min<uint64_t>(
      config.slice_bytes, Mesh::ring_bytes_for(config, ranks, false) / 4 - kFifoAlign));
  setting.lend_bytes = static_cast<double>(config.zero_copy_bytes);
  if (arguments.processes && config.shm_disable) setting.no_cpu_nodes = "NCCL_SHM_DISABLE is set";
  if (arguments.hosts > 1) {
    for (int r = 0; r < ranks; r++) setting.hosts.push_back(r * arguments.hosts / ranks);
    setting.nic_gbps = here.nic_gbps;
    setting.one_process = false;
    setting.no_cpu_nodes = "ranks are on several hosts";
  }
  CommunicatorPlans plans =
      make_init_plans({config,
                       ranks,
                       arguments.on_gpus,
                       setting,
                       here.machine,
                       arguments.hosts,
                       [&](const ImportedSchedule& schedule) {
                         return fits_fifos(schedule, Mesh::ring_bytes_for(config, ranks, false));
                       },
                       0,
                       {},
                       config.p2p_disable ? "NCCL_P2P_DISABLE is set" : "",
                       unfit_for_host_fifos});
  PlanChooser chooser(config, 0, "explain", imports(config, ranks));
  chooser.place(placement_of(arguments, config, ranks, plans.table, here.machine, setting.hosts));
  chooser.agree(std::move(plans));
  chooser.set_cpu_nodes(setting.no_cpu_nodes.empty() ? chooser.most_cpu_nodes(arguments.on_gpus)
                                                     : 0);
  const CollectiveKind kind = *collective_named(arguments.collective);
  if (arguments.json) {
    fmt::print("{}\n", to_json(chooser, ranks, kind, arguments.size).dump());
  } else {
    print(chooser, ranks, kind, arguments.size);
  }
}

}  // namespace

void add_explain(Command& program) {
  Command command =
      program.add_command("explain", "which plan at which size, and what the others would cost");
  const auto arguments = std::make_shared<ExplainArguments>();
  command.add_option("TOPO", arguments->topo, "a machine; without it host memory, on this one");
  command.add_option("--coll", arguments->collective, "collective").required().collective();
  command.add_option("--size", arguments->size, "bytes of the whole array; K, M, G").in_bytes();
  command.add_option("--ranks", arguments->ranks, "ranks; without it all GPUs, or all cores")
      .between(2, 4096);
  command.add_option("--hosts", arguments->hosts, "hosts like this one that share the ranks")
      .between(1, 4096);
  command.add_flag("--processes", arguments->processes, "ranks are processes, not threads");
  command.add_flag("--gpus", arguments->on_gpus,
                   "ranks are on GPUs, dealt out in turn; see NCCL_P2P_DISABLE");
  command.add_flag("--json", arguments->json, "one JSON object");
  command.calls([arguments] { answer(*arguments); });
}

}  // namespace weft
