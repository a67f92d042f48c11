// See plan_facts.h.
#include "src/planner/plan_facts.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "src/base/error.h"
#include "src/simulator/simulator.h"
#include "src/topology/graph/paths.h"

namespace weft {
namespace {

using Fifo = std::tuple<int, int, int>;  // from, to, channel

class Facts {
 public:
  Facts(const Machine& machine, const Schedule& schedule)
      : machine_(machine), schedule_(schedule), simulated_(machine), gpus_(gpus(machine)) {
    for (const RouteHint& hint : schedule.routes)
      hints_[{hint.from, hint.to, hint.channel}] = hint.links;
  }

  PlanFacts find() {
    for (size_t r = 0; r < schedule_.ranks.size(); r++)
      for (const Lane& lane : schedule_.ranks[r].lanes)
        for (const Step& step : lane.steps) add(static_cast<int>(r), step);
    facts_.nics.assign(nics_.begin(), nics_.end());
    return facts_;
  }

 private:
  void add(int rank, const Step& step) {
    for (const Operand& to : step.to)
      if (to.kind == Operand::Kind::kPeer) {
        use({rank, to.index, to.channel}, step.count);
      } else if (to.kind == Operand::Kind::kRemote && to.owner != rank) {
        use({rank, to.owner, 0}, step.count);
      }
    for (const Operand& from : step.from)
      if (from.kind == Operand::Kind::kRemote && from.owner != rank)
        use({from.owner, rank, 0}, step.count);
  }

  bool is_gpu(int rank) const { return static_cast<size_t>(rank) < gpus_.size(); }
  int host(int rank) const {
    return machine_.nodes[static_cast<size_t>(gpus_[static_cast<size_t>(rank)])].host;
  }

  void use(const Fifo& fifo, int chunks) {
    const auto& [from, to, channel] = fifo;
    const bool cpu_node = !is_gpu(from) || !is_gpu(to);
    const bool crosses = !cpu_node && host(from) != host(to);
    if (crosses) facts_.network_blocks += static_cast<double>(chunks) / schedule_.chunks;
    if (!seen_.insert(fifo).second) return;
    if (cpu_node) {
      facts_.host_memory++;
    } else if (crosses) {
      facts_.network++;
      note_nic(fifo);
    } else {
      (direct(from, to) ? facts_.peer_memory : facts_.host_memory)++;
    }
  }

  // The first NIC on the way is the sender's. Machines whose hosts share NVSwitches may have none.
  void note_nic(const Fifo& fifo) {
    const auto hint = hints_.find(fifo);
    const auto route = simulated_.routes.between(std::get<0>(fifo), std::get<1>(fifo));
    const std::span<const int32_t> links =
        hint != hints_.end() ? std::span<const int32_t>(hint->second) : route;
    NicUse use{std::get<0>(fifo), std::get<1>(fifo), std::get<2>(fifo), "", ""};
    for (const int32_t link : links) {
      const Node& node =
          machine_.nodes[static_cast<size_t>(machine_.links[static_cast<size_t>(link)].to)];
      if (node.type != NodeType::kNic) continue;
      (use.sends.empty() ? use.sends : use.receives) = node.id;
    }
    if (use.sends.empty()) return;
    nics_.insert(use.sends);
    facts_.nic_uses.push_back(std::move(use));
  }

  bool direct(int from, int to) {
    const auto [it, fresh] = direct_.try_emplace({std::min(from, to), std::max(from, to)}, false);
    if (fresh)
      it->second =
          is_direct(finder_.best(gpus_[static_cast<size_t>(from)], gpus_[static_cast<size_t>(to)]));
    return it->second;
  }

 public:
  static bool is_direct(const Path& path) {
    return path.path_class == PathClass::kNvlink || path.path_class == PathClass::kPcieSwitch;
  }

 private:
  const Machine& machine_;
  const Schedule& schedule_;
  SimulatedMachine simulated_;
  const std::vector<int> gpus_;
  const PathFinder finder_{machine_};
  std::map<Fifo, std::vector<int32_t>> hints_;
  std::map<std::pair<int, int>, bool> direct_;
  std::set<Fifo> seen_;
  std::set<std::string> nics_;
  PlanFacts facts_;
};

}  // namespace

bool all_direct(const Machine& machine) {
  const PathFinder finder(machine);
  const std::vector<int> all = gpus(machine);
  for (size_t a = 0; a < all.size(); a++)
    for (size_t b = 0; b < a; b++)
      if (machine.nodes[static_cast<size_t>(all[a])].host !=
              machine.nodes[static_cast<size_t>(all[b])].host ||
          !Facts::is_direct(finder.best(all[a], all[b])))
        return false;
  return !all.empty();
}

PlanFacts plan_facts(const Machine& machine, const Schedule& schedule) {
  return Facts(machine, schedule).find();
}

std::vector<std::vector<std::string>> nics_of_ranks(const Machine& machine) {
  std::vector<std::vector<std::string>> names;
  for (const NicChoice& choice : nic_affinity(machine)) {
    auto& mine = names.emplace_back();
    if (choice.nic < 0) continue;
    mine.push_back(machine.nodes[static_cast<size_t>(choice.nic)].id);
    for (const int nic : choice.more) mine.push_back(machine.nodes[static_cast<size_t>(nic)].id);
  }
  return names;
}

}  // namespace weft
