// See rank_blocks.h.
#include "src/exec/cuda/rank_blocks.h"

#include <utility>

namespace weft::cuda {

BlockRoom RankBlocks::look(bool any) {
  claimed_.reset();
  claimed_ = claim_slot(device_, issuer_, group_, any);
  return {registry_->free(), claimed_ != nullptr ? claimed_->blocks.blocks() : 0};
}

bool RankBlocks::reserve(int blocks) {
  reserved_ = registry_->reserve(blocks);
  return reserved_.has_value();
}

std::shared_ptr<LaunchSlot> RankBlocks::settle(std::shared_ptr<LaunchOrder> order) {
  if (!reserved_) return std::exchange(claimed_, nullptr);
  claimed_.reset();
  auto slot = std::make_shared<LaunchSlot>(std::move(*reserved_), std::move(order));
  reserved_.reset();
  offer_slot(device_, issuer_, slot);
  return slot;
}

}  // namespace weft::cuda
