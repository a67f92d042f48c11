// See asked_ranks.h.
#include "src/tools/asked_ranks.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/comm/mesh.h"
#include "src/comm/rank_config.h"
#include "src/exec/cuda/host_fifo_fit.h"
#include "src/planner/plan_facts.h"

namespace weft {
namespace {

constexpr int kMostPeerMemoryRanks = 32;  // beyond, and where some pairs have no access: lanes

// As a communicator of such ranks would be placed.
Placement placement_of(const AskedRanks& asked, const SelectionTable& table,
                       const std::vector<int>& hosts) {
  Placement placement;
  placement.one_process = !asked.processes && asked.hosts == 1;
  placement.one_host = asked.hosts == 1;
  const bool reach = asked.on_gpus && table.via_host.empty();
  placement.lanes = reach && (placement.one_host || (asked.own_gpus && asked.net_lanes()));
  placement.peer_memory =
      reach && placement.one_host &&
      (!asked.own_gpus || (asked.ranks <= kMostPeerMemoryRanks && all_direct(asked.machine)));
  placement.via_host = asked.on_gpus && !placement.lanes;
  placement.together =
      placement.peer_memory && placement.one_process && gpus(asked.machine).size() == 1;
  placement.multi_connection =
      !placement.one_host && uses_multi_connection(asked.config, asked.ranks, asked.on_gpus);
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

HostSetting setting_of(const AskedRanks& asked) {
  const Config& config = asked.config;
  HostSetting setting;
  setting.cores = asked.cores;
  setting.one_process = !asked.processes;
  setting.slice_bytes = static_cast<double>(std::min<uint64_t>(
      config.slice_bytes, Mesh::ring_bytes_for(config, asked.ranks, false) / 4 - kFifoAlign));
  setting.lend_bytes = static_cast<double>(config.zero_copy_bytes);
  if (asked.processes && config.shm_disable) setting.no_cpu_nodes = "NCCL_SHM_DISABLE is set";
  if (asked.hosts == 1) return setting;
  const std::vector<int> all = gpus(asked.machine);
  for (int r = 0; r < asked.ranks; r++)
    setting.hosts.push_back(asked.own_gpus ? asked.machine.nodes[static_cast<size_t>(all[r])].host
                                           : r * asked.hosts / asked.ranks);
  for (const int nic : nodes_of(asked.machine, NodeType::kNic))
    if (asked.machine.nodes[static_cast<size_t>(nic)].host == 0)
      setting.nic_gbps += asked.machine.nodes[static_cast<size_t>(nic)].gbps;
  setting.one_process = false;
  setting.no_cpu_nodes = "ranks are on several hosts";
  return setting;
}

}  // namespace

std::unique_ptr<const PlanChooser> plans_of(const AskedRanks& asked) {
  const Config& config = asked.config;
  const HostSetting setting = setting_of(asked);
  const uint64_t ring = Mesh::ring_bytes_for(config, asked.ranks, false);
  InitPlansRequest request{
      config,
      asked.ranks,
      asked.on_gpus,
      setting,
      asked.machine,
      asked.hosts,
      [&](const ImportedSchedule& schedule) { return asked.on_gpus || fits_fifos(schedule, ring); },
      0,
      {},
      config.p2p_disable ? "NCCL_P2P_DISABLE is set" : "",
      unfit_for_host_fifos,
      asked.net_lanes()};
  request.elsewhere = asked.elsewhere;
  CommunicatorPlans plans = make_init_plans(request);
  auto chooser = std::make_unique<PlanChooser>(config, 0, "explain", imports(config, asked.ranks));
  chooser->place(placement_of(asked, plans.table, setting.hosts));
  chooser->agree(std::move(plans));
  chooser->set_cpu_nodes(setting.no_cpu_nodes.empty() ? chooser->most_cpu_nodes(asked.on_gpus) : 0);
  return chooser;
}

}  // namespace weft
