// Thread blocks that were reserved together, and the order of the calls that use them: one kernel
// at a time. A communicator has a slot of its own while the GPU has free blocks. Otherwise its
// calls take the first slot of whoever makes them (GpuOptions::issuer), in the order in which they
// are made, whichever communicator they belong to.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "src/exec/cuda/block_registry.h"

namespace weft::cuda {

class LaunchOrder;

// Kept by the communicators that use it. They lock it for a launch.
struct LaunchSlot {
  LaunchSlot(BlockReservation reserved, std::shared_ptr<LaunchOrder> calls)
      : blocks(std::move(reserved)), order(std::move(calls)) {}

  const BlockReservation blocks;
  std::mutex mutex;
  const std::shared_ptr<LaunchOrder> order;
  // Communicators without blocks of their own that use it, by GpuOptions::group. launch_slot.cc
  // guards them.
  std::set<uint64_t> groups;
};

// Claims the first slot of an issuer on a device for a rank of communicator `group`; nullptr: there
// is none. `any`: then that of another issuer of this process. Its calls must be ordered with this
// one's, as NCCL asks. A slot serves one rank of a communicator, because kernels of two would wait
// for each other there. The claim ends with the pointer.
std::shared_ptr<LaunchSlot> claim_slot(int device, uint64_t issuer, uint64_t group, bool any);
// Makes it the first one, if there is none.
void offer_slot(int device, uint64_t issuer, const std::shared_ptr<LaunchSlot>& slot);

}  // namespace weft::cuda
