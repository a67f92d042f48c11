// See agreement.h.
#include "src/comm/agreement.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/comm/cluster.h"
#include "src/comm/cpu_nodes.h"
#include "src/comm/mesh.h"
#include "src/comm/nic_distance.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/cuda/host_fifo_fit.h"
#include "src/exec/cuda/net_memory.h"
#include "src/topology/graph/fingerprint.h"
#include "src/topology/graph/rank_machine.h"

namespace weft {
namespace {

HostSetting setting_of(const Cluster& cluster, const std::vector<PeerInfo>& infos,
                       const Config& config) {
  HostSetting setting;
  setting.one_process = std::all_of(infos.begin(), infos.end(), [&](const PeerInfo& info) {
    return info.process == infos[0].process;
  });
  // Hosts that NCCL_HOSTID makes of one machine share its cores, but talk over the network.
  std::vector<uint64_t> machines;
  for (const PeerInfo& info : infos)
    if (std::find(machines.begin(), machines.end(), info.machine) == machines.end())
      machines.push_back(info.machine);
  setting.cores = cluster.hosts[0].cores;
  for (const HostReport& host : cluster.hosts) setting.cores = std::min(setting.cores, host.cores);
  if (cluster.hosts.size() > 1) setting.hosts = cluster.host_of;
  setting.pretended_hosts = machines.size() < cluster.hosts.size();
  if (!setting.pretended_hosts) setting.nic_gbps = cluster.hosts[0].nic_gbps;
  const bool own_hosts = cluster.hosts.size() == infos.size();
  const uint64_t ring = Mesh::ring_bytes_for(config, static_cast<int>(infos.size()), own_hosts);
  const size_t wanted = cluster.hosts.size() > 1 ? config.net_slice_bytes : config.slice_bytes;
  setting.slice_bytes = static_cast<double>(std::min<uint64_t>(wanted, ring / 4 - kFifoAlign));
  setting.lend_bytes = static_cast<double>(config.zero_copy_bytes);
  return setting;
}

// Why data of GPUs must go through host memory, as settings say; empty: it need not.
std::string must_go_via_host(const std::vector<PeerInfo>& infos) {
  for (const PeerInfo& info : infos)
    if (info.p2p_disable != 0) return "NCCL_P2P_DISABLE is set";
  return "";
}

void log_plans(const std::string& label, const Cluster& cluster, const CommunicatorPlans& plans,
               double milliseconds) {
  WEFT_INFO(kInit, "{}: {} host{}, fingerprint {}; planned in {:.1f} ms for {}; {}", label,
            cluster.hosts.size(), cluster.hosts.size() == 1 ? "" : "s",
            fingerprint_text(cluster.machine), milliseconds, plans.table.machine,
            plans.table.origin);
  for (const std::string& note : cluster.machine.notes) {
    if (note.find(kOtherLinks) != std::string::npos) {
      WEFT_WARN("{}: {}", label, note);
    } else {
      WEFT_INFO(kInit, "{}", note);
    }
  }
  const std::string rules = why_rules_decide(plans.table, static_cast<int>(cluster.host_of.size()),
                                             static_cast<int>(cluster.hosts.size()));
  if (!rules.empty())
    WEFT_INFO(kInit, "{}: simple rules {}decide {}", label,
              plans.table.measured ? "and measured times " : "", rules);
  // On one host the table has the choices of the rules.
  if (!rules.empty() && cluster.hosts.size() > 1) return;
  for (int k = 0; k < kCollectiveKinds; k++) {
    const std::string lines = describe_ranges(plans.table, static_cast<CollectiveKind>(k));
    for (size_t at = 0; at < lines.size();) {
      const size_t end = lines.find('\n', at);
      WEFT_INFO(kInit, "{}", lines.substr(at, end - at));
      at = end + 1;
    }
  }
}

// Whether NICs decide if these ranks run lanes.
bool nics_decide(const Config& config, const std::vector<PeerInfo>& infos) {
  bool asked = false;
  const auto ask = [&] { return asked = true; };
  const auto has_gpu = [](const PeerInfo& info) { return info.gpu[0] != 0; };
  return std::all_of(infos.begin(), infos.end(), has_gpu) &&
         decide_net_lanes(config, infos, !config.topo.empty(), false, ask) == NetLanes::kAll &&
         asked;
}

// What rank 0 hears of a rank: how far NICs may be (NCCL_NET_GDR_LEVEL), and the rank's devices.
struct RankNics {
  std::string level;
  std::vector<GpuNic> devices;
};
std::string nics_text(const AgreeingRank& rank) {
  const bool dma_buf = rank.config.dmabuf_enable && cuda::exports_dma_buf(rank.device);
  std::string text = rank.config.net_gdr_level + "\n";
  for (const NetProperties& device : rank.devices())
    text +=
        fmt::format("{}{}\n", takes_gpu_memory(device.pointers, dma_buf) ? '+' : '-', device.name);
  return text;
}
RankNics read_nics(const std::string& text) {
  RankNics nics;
  std::istringstream lines(text);
  std::getline(lines, nics.level);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) nics.devices.push_back({line.substr(1), line[0] == '+'});
  return nics;
}

// Rank 0 only, of ranks that are alone on their hosts. `texts`: of their NICs.
bool all_reach_gpus(const AgreeingRank& rank, const Cluster& cluster,
                    const std::vector<PeerInfo>& infos, const std::vector<std::string>& texts) {
  std::vector<std::string> gpus;
  for (const PeerInfo& info : infos) gpus.emplace_back(info.gpu);
  const auto nranks = static_cast<int>(infos.size());
  const std::vector<int> places = gpus_of_ranks(cluster.machine, {gpus, cluster.host_of}, nranks);
  NicPlan plan;
  if (each_has_a_gpu(places)) plan = nic_plan(peer_ways(reduce_to(cluster.machine, places)), {});
  for (int r = 0; r < nranks; r++) {
    const RankNics nics = read_nics(texts[static_cast<size_t>(r)]);
    const std::string why = why_not_gpu_memory(nics.devices, plan, r, nics.level);
    if (why.empty()) continue;
    WEFT_INFO(kNet, "{}: calls go through FIFOs in host memory, not as lanes: rank {}: {}",
              rank.label, r, why);
    return false;
  }
  return true;
}

// Rank 0 only. `texts` describe the hosts, `devices` the networks of ranks where they decide.
CommunicatorPlans plan_for(const AgreeingRank& rank, const std::vector<PeerInfo>& infos,
                           const std::vector<std::string>& texts,
                           const std::vector<std::string>& devices) {
  const auto begin = std::chrono::steady_clock::now();
  const Config& config = rank.config;
  const auto nranks = static_cast<int>(infos.size());
  const Cluster cluster = merge_hosts(infos, texts);
  const uint64_t ring = Mesh::ring_bytes_for(config, nranks, cluster.hosts.size() == infos.size());
  HostSetting setting = setting_of(cluster, infos, config);
  setting.no_cpu_nodes = CpuNodes::forbidden(infos);
  // Where GPUs have peer access nothing else is asked.
  if (setting.no_cpu_nodes.empty() && cuda::available() && !config.topo.empty())
    setting.no_cpu_nodes = "beside GPUs WEFT_TOPO does not decide it";
  // Lanes cut FIFOs to measure.
  const std::string via_host = must_go_via_host(infos);
  const bool reach_gpus = !devices.empty() && all_reach_gpus(rank, cluster, infos, devices);
  const bool net_lanes = decide_net_lanes(config, infos, !config.topo.empty(), false,
                                          [&] { return reach_gpus; }) == NetLanes::kAll;
  const bool lanes =
      cuda::available() && via_host.empty() && (cluster.hosts.size() == 1 || net_lanes);
  InitPlansRequest request{
      config,
      nranks,
      cuda::available(),
      setting,
      cluster.machine,
      static_cast<int>(cluster.hosts.size()),
      [ring, lanes](const ImportedSchedule& s) { return lanes || fits_fifos(s, ring); },
      siphash(rank.secret, "tuner", 5),
      {},
      via_host,
      unfit_for_host_fifos,
      net_lanes,
      true};
  for (const PeerInfo& info : infos) request.gpus.emplace_back(info.gpu);
  CommunicatorPlans plans = make_init_plans(request);
  plans.nics.reach_gpus = reach_gpus;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  log_plans(rank.label, cluster, plans, took.count());
  return plans;
}

}  // namespace

CommunicatorPlans agree_on_plans(const AgreeingRank& rank, const std::vector<PeerInfo>& infos,
                                 Deadline deadline) {
  const std::vector<int> speakers = host_speakers(infos);
  const bool speaks = std::find(speakers.begin(), speakers.end(), rank.rank) != speakers.end();
  const std::string mine = speaks ? describe_host(rank.config, cuda::available()) : "";
  const auto texts = rank.control.collect(mine, deadline);
  std::vector<std::string> devices;
  if (nics_decide(rank.config, infos)) devices = rank.control.collect(nics_text(rank), deadline);
  std::string decided;
  if (rank.rank == 0) try {
      decided = "+" + plan_for(rank, infos, texts, devices).encode();
    } catch (const Error& error) {
      decided = fmt::format("-{}", error.what());
    }
  const std::string answer = rank.control.all_gather(decided, deadline)[0];
  if (answer.empty() || answer[0] != '+')
    fail(ncclInvalidUsage, "planning failed on rank 0: {}",
         answer.empty() ? "it says nothing" : answer.substr(1));
  return CommunicatorPlans::decode(std::string_view(answer).substr(1));
}

NetLanes decide_net_lanes(const Config& config, const std::vector<PeerInfo>& infos, bool schedules,
                          bool compresses, const std::function<bool()>& nics_reach_gpus) {
  std::vector<uint64_t> hosts;
  for (const PeerInfo& info : infos) {
    if (info.p2p_disable != 0 || info.shm_disable != 0) return NetLanes::kNone;
    if (std::find(hosts.begin(), hosts.end(), info.host) == hosts.end()) hosts.push_back(info.host);
  }
  if (hosts.size() < 2 || config.net_lanes == 0) return NetLanes::kNone;
  if (hosts.size() < infos.size() || schedules || config.net_lanes > 1) return NetLanes::kAll;
  // Lanes save two copies through host memory then. Otherwise FIFOs carry more.
  if (nics_reach_gpus && nics_reach_gpus()) return NetLanes::kAll;
  return compresses ? NetLanes::kCoded : NetLanes::kNone;
}

}  // namespace weft
