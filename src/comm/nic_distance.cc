// See nic_distance.h.
#include "src/comm/nic_distance.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <utility>

namespace weft {
namespace {

// Plugins may name the port too, as in mlx5_0:1. Machines do not.
bool names(const NicPlan& plan, int rank, const std::string& nic) {
  const auto r = static_cast<size_t>(rank);
  return r < plan.of_rank.size() &&
         std::any_of(plan.of_rank[r].begin(), plan.of_rank[r].end(),
                     [&](const std::string& name) { return nic == name || nic == name + ":1"; });
}

}  // namespace

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
  if (!names(plan, rank, nic))
    return fmt::format(
        "nothing is known of the way from {} to the GPU (NCCL_NET_GDR_LEVEL=SYS "
        "allows any)",
        nic);
  if (plan.distance[r] <= most) return "";
  return fmt::format("the way from {} to the GPU is {} (NCCL_NET_GDR_LEVEL)", nic,
                     name_of(plan.distance[r]));
}

bool takes_gpu_memory(int pointers, bool dma_buf) {
  return (pointers & (net_abi::kCudaPointer | (dma_buf ? net_abi::kDmaBuf : 0))) != 0;
}

std::string takes_none(const std::string& nic) {
  return fmt::format("{} takes no memory of GPUs", nic);
}

std::string why_not_gpu_memory(std::span<const GpuNic> devices, const NicPlan& plan, int rank,
                               const std::string& level) {
  const auto named = [&](const GpuNic& device) { return names(plan, rank, device.name); };
  const bool any_named = std::any_of(devices.begin(), devices.end(), named);
  for (const GpuNic& device : devices) {
    if (any_named && !named(device)) continue;
    if (!device.takes_gpus) return takes_none(device.name);
    const std::string why = too_far(plan, rank, device.name, level);
    if (!why.empty()) return why;
  }
  return devices.empty() ? "its network has no device" : "";
}

}  // namespace weft
