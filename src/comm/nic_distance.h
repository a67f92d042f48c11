// Whether a NIC may read and write the memory of a rank's GPU: by what it can, and by how near it
// is (NCCL_NET_GDR_LEVEL).
#pragma once

#include <span>
#include <string>

#include "src/planner/nic_plan.h"
#include "src/transport/network.h"

namespace weft {

// The farthest way that a level allows: LOC, PIX, PXB, PHB, SYS, or NCCL's numbers, where larger
// ones than 4 are SYS. kSelf: none is near enough. Empty means PXB.
PathClass farthest_way(const std::string& level);

// Why NIC `nic` may not have the memory of this rank's GPU. Empty: it may.
std::string too_far(const NicPlan& plan, int rank, const std::string& nic,
                    const std::string& level);

// `pointers`: kinds of memory that a device takes. `dma_buf`: GPU memory has descriptors.
bool takes_gpu_memory(int pointers, bool dma_buf = true);
// What is said of a NIC that does not.
std::string takes_none(const std::string& nic);

// A device of a rank's network, and whether it takes the memory of GPUs.
struct GpuNic {
  std::string name;
  bool takes_gpus = false;
};
// Of all devices that may serve a rank, before any is chosen: those that the plan names, or else
// all. Why one of them may not have its GPU's memory. Empty: all may.
std::string why_not_gpu_memory(std::span<const GpuNic> devices, const NicPlan& plan, int rank,
                               const std::string& level);

}  // namespace weft
