// See nic_distance.h.
#include "src/comm/nic_distance.h"

#include <strings.h>

#include <algorithm>

#include "src/base/error.h"

namespace weft {

PathClass farthest_way(const std::string& level) {
  struct Level {
    const char *name, *number;
    PathClass way;
  };
  // PIX is one PCIe switch, PXB several. Machines do not tell them apart here.
  constexpr Level kLevels[] = {{"LOC", "0", PathClass::kSelf},
                               {"PIX", "1", PathClass::kPcieSwitch},
                               {"PXB", "2", PathClass::kPcieSwitch},
                               {"PHB", "3", PathClass::kHostBridge},
                               {"SYS", "4", PathClass::kSockets}};
  if (level.empty()) return PathClass::kPcieSwitch;
  for (const Level& each : kLevels)
    if (strcasecmp(level.c_str(), each.name) == 0 || level == each.number) return each.way;
  fail(ncclInvalidUsage, "NCCL_NET_GDR_LEVEL={} is none of LOC, PIX, PXB, PHB, SYS", level);
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
