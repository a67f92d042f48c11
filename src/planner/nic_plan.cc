// See nic_plan.h.
#include "src/planner/nic_plan.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "src/planner/plan_facts.h"

namespace weft {
namespace {

// Finding every schedule's routes takes too long at init with more ranks. Then the nearest NICs
// serve all routes, and must reach each other.
constexpr size_t kMostRoutedRanks = 64;

// join() puts the host in front of a name: h1.mlx5_0.
std::string name_on_host(const std::string& id) {
  const size_t digits = id.find_first_not_of("0123456789", 1);
  const bool has_host = id[0] == 'h' && digits > 1 && digits < id.size() && id[digits] == '.';
  return has_host ? id.substr(digits + 1) : id;
}

// Per node: the number of the network that a NIC is part of. Networks that no switch joins, as
// rails may be, have different numbers.
std::vector<int> networks(const Machine& machine) {
  std::vector<int> number(machine.nodes.size(), -1);
  const auto outside = [&](int node) {
    const Node& n = machine.nodes[static_cast<size_t>(node)];
    return n.host < 0 || n.type == NodeType::kNic;
  };
  std::vector<std::vector<int>> next(machine.nodes.size());
  for (const Link& link : machine.links)
    if (outside(link.from) && outside(link.to)) {
      next[static_cast<size_t>(link.from)].push_back(link.to);
      next[static_cast<size_t>(link.to)].push_back(link.from);
    }
  int count = 0;
  for (const int nic : nodes_of(machine, NodeType::kNic)) {
    if (number[static_cast<size_t>(nic)] >= 0) continue;
    std::vector<int> left = {nic};
    number[static_cast<size_t>(nic)] = count;
    while (!left.empty()) {
      const int node = left.back();
      left.pop_back();
      for (const int other : next[static_cast<size_t>(node)])
        if (std::exchange(number[static_cast<size_t>(other)], count) < 0) left.push_back(other);
    }
    count++;
  }
  return number;
}

// Where the NICs of two ranks are not all in one network, both ends must choose the same: that of
// the receiver's first NIC, else that of the sender's.
void join_rails(const Machine& machine, NicPlan& plan) {
  const std::vector<int> number = networks(machine), all = gpus(machine),
                         nics = nodes_of(machine, NodeType::kNic);
  const std::vector<NicChoice> choices = nic_affinity(machine);
  const auto host = [&](int node) { return machine.nodes[static_cast<size_t>(node)].host; };
  const auto network = [&](int nic) { return number[static_cast<size_t>(nic)]; };
  // The first of a rank's NICs in a network, else of its host's. -1: it has none there.
  const auto in = [&](size_t rank, int wanted) {
    if (network(choices[rank].nic) == wanted) return choices[rank].nic;
    for (const int nic : choices[rank].more)
      if (network(nic) == wanted) return nic;
    for (const int nic : nics)
      if (host(nic) == host(all[rank]) && network(nic) == wanted) return nic;
    return -1;
  };
  const auto only_in = [&](size_t rank, int wanted) {
    return network(choices[rank].nic) == wanted &&
           std::all_of(choices[rank].more.begin(), choices[rank].more.end(),
                       [&](int nic) { return network(nic) == wanted; });
  };
  const auto name = [&](int nic) {
    return name_on_host(machine.nodes[static_cast<size_t>(nic)].id);
  };
  for (size_t from = 0; from < all.size(); from++)
    for (size_t to = 0; to < all.size(); to++) {
      if (host(all[from]) == host(all[to]) || choices[from].nic < 0 || choices[to].nic < 0)
        continue;
      const int theirs = network(choices[to].nic), mine = network(choices[from].nic);
      if (only_in(from, theirs) && only_in(to, theirs)) continue;
      for (const int meeting : {theirs, mine}) {
        const int sends = in(from, meeting), receives = in(to, meeting);
        if (sends < 0 || receives < 0) continue;
        plan.routes.push_back(
            {static_cast<int>(from), static_cast<int>(to), -1, name(sends), name(receives)});
        break;
      }
    }
}

}  // namespace

NicPlan nic_plan(const Machine& machine,
                 std::span<const std::shared_ptr<const ImportedSchedule>> schedules) {
  NicPlan plan;
  if (count_hosts(machine) < 2) return plan;
  plan.of_rank = nics_of_ranks(machine);
  for (const NicChoice& choice : nic_affinity(machine))
    plan.distance.push_back(choice.nic < 0 ? PathClass::kNone : choice.direct.path_class);
  for (auto& names : plan.of_rank)
    for (std::string& name : names) name = name_on_host(name);
  if (plan.of_rank.size() > kMostRoutedRanks) return plan;
  std::set<std::tuple<int, int, int>> known;
  std::set<std::pair<int, int>> pairs;
  for (const auto& schedule : schedules) {
    const auto& proved =
        schedule->in_place != nullptr ? schedule->in_place : schedule->out_of_place;
    if (schedule->cpu_nodes() > 0) continue;
    for (const NicUse& use : plan_facts(machine, proved->schedule()).nic_uses) {
      const NicPlan::Route route{use.from, use.to, use.channel, name_on_host(use.sends),
                                 name_on_host(use.receives)};
      const auto is_first = [&](int rank, const std::string& name) {
        const auto& names = plan.of_rank[static_cast<size_t>(rank)];
        return !names.empty() && names.front() == name;
      };
      if (!known.insert({use.from, use.to, use.channel}).second) continue;
      const bool usual = is_first(use.from, route.sends) && is_first(use.to, route.receives);
      // A pair's first route is also that of posts, so it stands before unusual ones.
      if (pairs.insert({use.from, use.to}).second || !usual) plan.routes.push_back(route);
    }
  }
  join_rails(machine, plan);
  return plan;
}

}  // namespace weft
