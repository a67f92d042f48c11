// The thread blocks of one rank while its communicator is made: reserved ones, or a slot that other
// communicators use too. Calls no CUDA.
#pragma once

#include <memory>
#include <optional>

#include "src/exec/cuda/block_registry.h"
#include "src/exec/cuda/block_share.h"
#include "src/exec/cuda/launch_slot.h"

namespace weft::cuda {

// For one thread at a time.
class RankBlocks {
 public:
  // `group` identifies the communicator, `issuer` whoever makes its calls.
  RankBlocks(std::shared_ptr<BlockRegistry> registry, int device, uint64_t issuer, uint64_t group)
      : registry_(std::move(registry)), device_(device), issuer_(issuer), group_(group) {}

  // Looks at the GPU and claims a slot, instead of an earlier one: the issuer's first, or that of
  // another issuer if `any` says so.
  BlockRoom look(bool any);
  // All of them or none.
  bool reserve(int blocks);
  // Gives back what is reserved.
  void release() { reserved_.reset(); }
  // Where calls run: in what is reserved, which later communicators of the issuer may use too, or
  // else in the claimed slot. `order` is for a new slot.
  std::shared_ptr<LaunchSlot> settle(std::shared_ptr<LaunchOrder> order);

 private:
  const std::shared_ptr<BlockRegistry> registry_;
  const int device_;
  const uint64_t issuer_, group_;
  std::optional<BlockReservation> reserved_;
  std::shared_ptr<LaunchSlot> claimed_;
};

}  // namespace weft::cuda
