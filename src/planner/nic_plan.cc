// See nic_plan.h.
#include "src/planner/nic_plan.h"

#include <set>
#include <sstream>
#include <tuple>

#include "src/base/error.h"
#include "src/planner/plan_facts.h"

namespace weft {
namespace {

// Finding every schedule's routes takes too long at init with more ranks. Then the nearest NICs
// serve all routes.
constexpr size_t kMostRoutedRanks = 64;

// join() puts the host in front of a name: h1.mlx5_0.
std::string name_on_host(const std::string& id) {
  const size_t digits = id.find_first_not_of("0123456789", 1);
  const bool has_host = id[0] == 'h' && digits > 1 && digits < id.size() && id[digits] == '.';
  return has_host ? id.substr(digits + 1) : id;
}

}  // namespace

std::string NicPlan::encode() const {
  std::string text;
  for (size_t rank = 0; rank < of_rank.size(); rank++) {
    text += fmt::format("rank {}", static_cast<int>(distance[rank]));
    for (const std::string& name : of_rank[rank]) text.append(" ").append(name);
    text += '\n';
  }
  for (const Route& route : routes)
    text += fmt::format("route {} {} {} {} {}\n", route.from, route.to, route.channel, route.sends,
                        route.receives);
  return text;
}

NicPlan NicPlan::decode(std::string_view text) {
  NicPlan plan;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "rank") {
      int distance = -1;
      words >> distance;
      if (distance < 0 || distance > static_cast<int>(PathClass::kNone))
        fail(ncclInternalError, "rank 0 names no distance of NICs: '{}'", line);
      plan.distance.push_back(static_cast<PathClass>(distance));
      auto& names = plan.of_rank.emplace_back();
      for (std::string name; words >> name;) names.push_back(name);
      continue;
    }
    Route route;
    if (kind != "route" ||
        !(words >> route.from >> route.to >> route.channel >> route.sends >> route.receives))
      fail(ncclInternalError, "rank 0 says of NICs what nobody understands: '{}'", line);
    plan.routes.push_back(route);
  }
  return plan;
}

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
  return plan;
}

}  // namespace weft
