// See cluster.h.
#include "src/comm/cluster.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>
#include <set>

#include "algorithms/catalogue/catalogue.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/parallel_for.h"
#include "src/base/siphash.h"
#include "src/planner/rank_placement.h"
#include "src/topology/formats/machine_json.h"
#include "src/topology/graph/network.h"
#include "src/topology/graph/rank_machine.h"
#include "src/topology/sources/discover.h"
#include "src/topology/sources/hwloc_view.h"

namespace weft {
namespace {

std::string look_at_host(bool hidden_gpus) {
  Discovery how;
  how.hwloc = hwloc_view;
  how.hidden_gpus = hidden_gpus;
  const auto begin = std::chrono::steady_clock::now();
  const Machine machine = this_machine(how);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  const auto without =
      std::find_if(machine.notes.begin(), machine.notes.end(),
                   [](const std::string& note) { return note.ends_with(kWithoutHwloc); });
  const bool by_hwloc = without == machine.notes.end();
  WEFT_INFO(kInit, "this host was looked at by {} in {:.1f} ms: {} GPUs, {} NICs",
            by_hwloc ? "hwloc" : "/sys", took.count(), gpus(machine).size(),
            nodes_of(machine, NodeType::kNic).size());
  if (!by_hwloc) WEFT_INFO(kInit, "{}", *without);
  double nic_gbps = 0;
  for (const int nic : nodes_of(machine, NodeType::kNic))
    nic_gbps += machine.nodes[static_cast<size_t>(nic)].gbps;
  return fmt::format("{}\t{}\n{}", usable_cores(), nic_gbps, machine_to_json(machine));
}

}  // namespace

std::string describe_host(const Config& config, bool hidden_gpus) {
  using Key = std::pair<std::string, bool>;
  static std::mutex mutex;
  static auto& known = *std::make_unique<std::map<Key, std::string>>().release();
  std::lock_guard lock(mutex);
  std::string& text = known[{config.topo_file, hidden_gpus}];
  if (text.empty()) text = look_at_host(hidden_gpus);
  return text;
}

uint64_t view_of_host(const Config& config) {
  const std::string text = describe_host(config, true);
  const size_t machine = text.find('\n');  // cores differ between processes
  return siphash(Secret{}, text.data() + machine, text.size() - machine);
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

std::vector<int> host_speakers(const std::vector<PeerInfo>& infos) {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  std::vector<int> speakers;
  for (size_t r = 0; r < infos.size(); r++)
    if (seen.emplace(infos[r].host, infos[r].view).second) speakers.push_back(static_cast<int>(r));
  return speakers;
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
  // Hosts of one kind often have equal descriptions. Each description is parsed once.
  std::map<std::string, HostReport> read;
  std::vector<std::vector<Machine>> views(
      static_cast<size_t>(*std::max_element(cluster.host_of.begin(), cluster.host_of.end())) + 1);
  for (const int speaker : host_speakers(infos)) {
    const std::string& text = texts[static_cast<size_t>(speaker)];
    const auto [it, fresh] = read.try_emplace(text);
    if (fresh) it->second = read_host_report(text, speaker);
    const auto host = static_cast<size_t>(cluster.host_of[static_cast<size_t>(speaker)]);
    if (views[host].empty()) cluster.hosts.push_back(it->second);
    views[host].push_back(it->second.machine);
  }
  std::vector<Machine> machines;
  for (size_t host = 0; host < views.size(); host++) {
    if (views[host].size() > 1) cluster.hosts[host].machine = unite_views(views[host]);
    machines.push_back(cluster.hosts[host].machine);
  }
  cluster.machine = join(machines);
  return cluster;
}

}  // namespace weft
