// The part of a communicator that looks at the cluster and agrees on plans, at init.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/cluster.h"
#include "src/comm/communicator.h"
#include "src/exec/ring_fit.h"
#include "src/planner/planning.h"
#include "src/planner/tuning_rules.h"
#include "src/topology/fingerprint.h"

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

}  // namespace

// What rank 0 decides is what all ranks use; what it cannot decide fails on all ranks with one
// text.
void Communicator::agree_on_plans(const std::vector<PeerInfo>& infos, Deadline deadline) {
  if (nranks_ == 1) return;
  const std::vector<int> leaders = host_leaders(infos);
  const bool speaks = std::find(leaders.begin(), leaders.end(), rank_) != leaders.end();
  const auto texts = control_->collect(speaks ? describe_host(config_) : "", deadline);
  std::string decided, trouble;
  if (rank_ == 0) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      const Cluster cluster = merge_hosts(infos, texts);
      const uint64_t ring =
          Mesh::ring_bytes_for(config_, nranks_, cluster.hosts.size() == infos.size());
      HostSetting setting = setting_of(cluster, infos, config_);
      setting.no_cpu_nodes = no_cpu_nodes(infos);
      // Where GPUs reach each other nothing else is asked.
      if (setting.no_cpu_nodes.empty() && cuda::available() && !config_.topo.empty())
        setting.no_cpu_nodes = "beside GPUs WEFT_TOPO does not decide it";
      PlanningRequest request{config_,
                              nranks_,
                              cuda::available(),
                              setting,
                              cluster.machine,
                              static_cast<int>(cluster.hosts.size()),
                              [ring](const ImportedSchedule& s) { return fits_rings(s, ring); },
                              siphash(secret_, "tuner", 5),
                              {},
                              must_stage(infos),
                              unfit_for_rings};
      for (const PeerInfo& info : infos) request.gpus.emplace_back(info.gpu);
      const CommunicatorPlans plans = make_plans(request);
      decided = plans.encode();
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      WEFT_INFO(kInit, "{}: {} host{}, fingerprint {}; planned in {:.1f} ms for {}; {}",
                context_.label, cluster.hosts.size(), cluster.hosts.size() == 1 ? "" : "s",
                fingerprint_text(cluster.machine), took.count(), plans.table.machine,
                plans.table.origin);
      for (int k = 0; k < kCollectiveKinds; k++) {
        const std::string lines = describe_ranges(plans.table, static_cast<CollectiveKind>(k));
        for (size_t at = 0; at < lines.size();) {
          const size_t end = lines.find('\n', at);
          WEFT_INFO(kInit, "{}", lines.substr(at, end - at));
          at = end + 1;
        }
      }
    } catch (const Error& error) {
      trouble = fmt::format("{}", error.what());
    }
    decided = trouble.empty() ? "+" + decided : "-" + trouble;
  }
  const std::string answer = control_->all_gather(decided, deadline)[0];
  if (answer.empty() || answer[0] != '+')
    fail(ncclInvalidUsage, "planning failed on rank 0: {}",
         answer.empty() ? "it says nothing" : answer.substr(1));
  const TuningRules rules = TuningRules::from(config_);
  for (int k = 0; k < kCollectiveKinds; k++)
    copies_only_[static_cast<size_t>(k)] = !rules.protocols.allows(
        static_cast<CollectiveKind>(k), static_cast<int>(NcclProtocol::kSimple));
  plans_made_ = CommunicatorPlans::decode(std::string_view(answer).substr(1));
  for (const PlanOption& option : plans_made_.table.options)
    option_generators_.push_back(option.schedule < 0 ? find_generator(option.name) : nullptr);
  connected_ = ImportedSchedules::both(*imported_, *plans_made_.schedules);
}

Config Communicator::tuned(Config config, int nranks) {
  TuningRules rules;
  try {
    rules = TuningRules::from(config);
  } catch (const Error&) {
    return config;  // all ranks hear of it when they come together
  }
  const auto allows = [&](NcclProtocol protocol) {
    return rules.protocols.allows(CollectiveKind::kAllReduce, static_cast<int>(protocol));
  };
  // On GPUs the low-latency protocol is LL and LL128 at once.
  if (!allows(NcclProtocol::kLl) && !allows(NcclProtocol::kLl128)) config.packet_bytes = 0;
  if (wide_if_hosts(config, nranks)) {
    config.net_ring_bytes = config.gpu_net_ring_bytes;
    config.net_slice_bytes = config.gpu_net_slice_bytes;
  }
  if (config.max_channels > 0 && (config.max_ctas <= 0 || config.max_ctas > config.max_channels))
    config.max_ctas = config.max_channels;
  return config;
}

void Communicator::synchronize() {
  if (gpu_ != nullptr) gpu_->synchronize();
}

double Communicator::estimate_us(const Call& call) const {
  const Collective collective{call.kind, nranks_, call.root};
  const size_t bytes = array_bytes(collective, call);
  const SelectionTable& table = plans_made_.table;
  const Generator* named = forced_[static_cast<size_t>(call.kind)];
  if (named == nullptr && goes_by_rules())
    named = &choose_generator(collective, bytes, placement_, nullptr);
  const PlanOption* option = nullptr;
  if (named != nullptr) {
    for (const PlanOption& known : table.options)
      if (known.kind == call.kind && known.name == named->name) option = &known;
  } else {
    option = table.choose(call.kind, bytes, false);
  }
  return option == nullptr ? 0 : SelectionTable::estimate(*option, static_cast<double>(bytes));
}

const char* Communicator::plan_name(CollectiveKind kind, size_t bytes) const {
  // Names of generators are literals.
  const Generator* forced = forced_[static_cast<size_t>(kind)];
  if (forced != nullptr) return forced->name.data();
  const PlanOption* option =
      goes_by_rules() ? nullptr : plans_made_.table.choose(kind, bytes, false);
  if (option != nullptr) return option->name.c_str();
  return choose_generator({kind, nranks_, 0}, bytes, placement_, nullptr).name.data();
}

}  // namespace weft
