// See cluster.h.
#include "src/comm/cluster.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/parallel_for.h"
#include "src/planner/rank_placement.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/graph/network.h"
#include "src/topology/sources/discover.h"
#include "src/topology/sources/hwloc_view.h"

namespace weft {
namespace {

std::string look_at_host() {
  const Machine machine = this_machine({hwloc_view});
  for (const std::string& note : machine.notes)
    if (note.ends_with(kWithoutHwloc)) WEFT_INFO(kInit, "{}", note);
  double nic_gbps = 0;
  for (const int nic : nodes_of(machine, NodeType::kNic))
    nic_gbps += machine.nodes[static_cast<size_t>(nic)].gbps;
  return fmt::format("{}\t{}\n{}", usable_cores(), nic_gbps, machine_to_json(machine));
}

}  // namespace

std::string describe_host(const Config& config) {
  static std::mutex mutex;
  static auto& known = *std::make_unique<std::map<std::string, std::string>>().release();
  std::lock_guard lock(mutex);
  std::string& text = known[config.topo_file];
  if (text.empty()) text = look_at_host();
  return text;
}

HostReport read_host_report(const std::string& text, int rank) {
  HostReport report;
  const size_t line = text.find('\n');
  const char* at = text.data();
  const char* end = text.data() + (line == std::string::npos ? 0 : line);
  const auto number = [&](auto& value) {
    const auto [rest, error] = std::from_chars(at, end, value);
    if (error != std::errc())
      fail(ncclInternalError, "rank {} does not describe its host in a way that is understood",
           rank);
    at = rest < end ? rest + 1 : rest;
  };
  number(report.cores);
  number(report.nic_gbps);
  report.machine =
      machine_from_json(text.substr(line + 1), fmt::format("the host of rank {}", rank));
  return report;
}

std::vector<int> host_numbers(const std::vector<PeerInfo>& infos) {
  std::map<uint64_t, int> numbers;
  std::vector<int> hosts;
  for (const PeerInfo& info : infos)
    hosts.push_back(numbers.emplace(info.host, static_cast<int>(numbers.size())).first->second);
  return hosts;
}

std::vector<int> host_leaders(const std::vector<PeerInfo>& infos) {
  std::map<uint64_t, int> seen;
  std::vector<int> leaders;
  for (size_t r = 0; r < infos.size(); r++)
    if (seen.emplace(infos[r].host, static_cast<int>(r)).second)
      leaders.push_back(static_cast<int>(r));
  return leaders;
}

void advise_placement(const char* topo, int nranks, bool ring, int* gpus) {
  const Machine machine =
      topo != nullptr ? load_machine(topo)
                      : read_host_report(describe_host(Config::from_environment()), 0).machine;
  const std::vector<int> all = weft::gpus(machine);
  for (const PlacedRank& rank :
       place_ranks(machine, nranks, ring ? WorkPattern::kCycle : WorkPattern::kPipeline))
    *gpus++ = static_cast<int>(std::find(all.begin(), all.end(), rank.gpu) - all.begin());
}

Cluster merge_hosts(const std::vector<PeerInfo>& infos, const std::vector<std::string>& texts) {
  Cluster cluster;
  cluster.host_of = host_numbers(infos);
  std::vector<Machine> machines;
  // Hosts of one kind often have equal descriptions. Each description is parsed once.
  std::map<std::string, HostReport> read;
  for (const int leader : host_leaders(infos)) {
    const std::string& text = texts[static_cast<size_t>(leader)];
    const auto [it, fresh] = read.try_emplace(text);
    if (fresh) it->second = read_host_report(text, leader);
    cluster.hosts.push_back(it->second);
    machines.push_back(it->second.machine);
  }
  cluster.machine = join(machines);
  return cluster;
}

}  // namespace weft
