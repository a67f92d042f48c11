// See nic_distance.h.
#include "src/comm/nic_distance.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <utility>

namespace weft {

PathClass farthest_way(const std::string& level) {
  // PIX is one PCIe switch, PXB several. Machines do not tell them apart here.
  constexpr std::pair<const char*, PathClass> kLevels[] = {
      {"", PathClass::kPcieSwitch},  {"LOC", PathClass::kSelf},
      {"0", PathClass::kSelf},       {"PIX", PathClass::kPcieSwitch},
      {"1", PathClass::kPcieSwitch}, {"PXB", PathClass::kPcieSwitch},
      {"2", PathClass::kPcieSwitch}, {"PHB", PathClass::kHostBridge},
      {"3", PathClass::kHostBridge}};
  for (const auto& [name, way] : kLevels)
    if (strcasecmp(level.c_str(), name) == 0) return way;
  return PathClass::kSockets;  // SYS, and numbers from 4 on: Config takes nothing else
}

std::string too_far(const NicPlan& plan, int rank, const std::string& nic,
                    const std::string& level) {
  const PathClass most = farthest_way(level);
  if (most == PathClass::kSelf) return "NCCL_NET_GDR_LEVEL=LOC";
  if (most == PathClass::kSockets) return "";  // whatever the machine is
  const auto r = static_cast<size_t>(rank);
  const bool known =
      r < plan.of_rank.size() &&
      std::find(plan.of_rank[r].begin(), plan.of_rank[r].end(), nic) != plan.of_rank[r].end();
  if (!known)
    return fmt::format(
        "nothing is known of the way from {} to the GPU (NCCL_NET_GDR_LEVEL=SYS "
        "allows any)",
        nic);
  if (plan.distance[r] <= most) return "";
  return fmt::format("the way from {} to the GPU is {} (NCCL_NET_GDR_LEVEL)", nic,
                     name_of(plan.distance[r]));
}

}  // namespace weft
