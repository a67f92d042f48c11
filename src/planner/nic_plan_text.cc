// Which NICs serve which ranks, as rank 0 tells the others. See nic_plan.h.
#include <sstream>

#include "src/base/error.h"
#include "src/planner/nic_plan.h"

namespace weft {

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
  if (reach_gpus) text += "reach\n";
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
    if (kind == "reach") {
      plan.reach_gpus = true;
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

}  // namespace weft
