// Whether a NIC is near enough to a rank's GPU to read and write its memory (NCCL_NET_GDR_LEVEL).
#pragma once

#include <string>

#include "src/planner/nic_plan.h"

namespace weft {

// The farthest way that a level allows: LOC, PIX, PXB, PHB, SYS, or NCCL's numbers, where larger
// ones than 4 are SYS. kSelf: none is near enough. Empty means PXB.
PathClass farthest_way(const std::string& level);

// Why NIC `nic` may not have the memory of this rank's GPU. Empty: it may.
std::string too_far(const NicPlan& plan, int rank, const std::string& nic,
                    const std::string& level);

}  // namespace weft
