// Thread blocks that were reserved together, and the order of the calls that use them: one kernel
// at a time. A communicator has a slot of its own while the GPU has free blocks. Otherwise its
// calls take the first slot of whoever makes them (GpuOptions::issuer), in the order in which they
// are made, whichever communicator they belong to.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "src/exec/cuda/block_registry.h"
#include "src/exec/cuda/launch_order.h"

namespace weft::cuda {

// Kept by the communicators that use it. They lock it for a launch.
struct LaunchSlot {
  LaunchSlot(BlockReservation reserved, bool mixing) : blocks(std::move(reserved)), order(mixing) {}

  const BlockReservation blocks;
  std::mutex mutex;
  LaunchOrder order;
};

// The first slot of an issuer on a device that is still in use; nullptr: there is none. `any`: then
// that of another issuer of this process. Its calls must be ordered with this one's, as NCCL asks.
std::shared_ptr<LaunchSlot> issuer_slot(int device, uint64_t issuer, bool any);
// Makes it the first one, if there is none.
void offer_slot(int device, uint64_t issuer, const std::shared_ptr<LaunchSlot>& slot);

}  // namespace weft::cuda
