// See common_slot.h.
#include "src/exec/cuda/common_slot.h"

#include <map>
#include <utility>

#include "src/base/error.h"

namespace weft::cuda {

std::shared_ptr<CommonSlot> common_slot(BlockRegistry& registry, int device, uint64_t issuer) {
  using Key = std::pair<int, uint64_t>;
  static std::mutex mutex;
  static auto& all = *std::make_unique<std::map<Key, std::weak_ptr<CommonSlot>>>().release();
  std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<CommonSlot> slot = all[{device, issuer}].lock();
  if (slot != nullptr) return slot;
  std::optional<BlockReservation> block = registry.reserve(1);
  if (!block)
    fail(ncclSystemError,
         "GPU {} has no thread block left for another rank: communicators have reserved all {} "
         "(destroy some, or lower WEFT_BLOCK_SHARE in their processes)",
         device, registry.budget());
  slot = std::make_shared<CommonSlot>();
  slot->block = std::move(*block);
  all[{device, issuer}] = slot;
  return slot;
}

}  // namespace weft::cuda
