// Where communicators run that found no blocks to reserve. Every thread that makes calls has one
// block on its GPU, reserved at its first init. Calls of all such communicators take it in turn, in
// the order in which they are made.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "src/exec/cuda/block_registry.h"
#include "src/exec/cuda/launch_order.h"

namespace weft::cuda {

// Kept by the communicators that may need it. They lock it for a launch.
struct CommonSlot {
  BlockReservation block;
  std::mutex mutex;
  LaunchOrder order{true};
};

// The slot of an issuer (GpuOptions::issuer) on the current device. Throws Error where the GPU has
// no block left.
std::shared_ptr<CommonSlot> common_slot(BlockRegistry& registry, int device, uint64_t issuer);

}  // namespace weft::cuda
