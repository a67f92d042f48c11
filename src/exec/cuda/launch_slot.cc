// See launch_slot.h.
#include "src/exec/cuda/launch_slot.h"

#include <map>
#include <utility>

namespace weft::cuda {
namespace {

// The first slots of all issuers of this process.
struct FirstSlots {
  static FirstSlots& instance() {
    static FirstSlots& all = *std::make_unique<FirstSlots>().release();
    return all;
  }
  std::mutex mutex;
  std::map<std::pair<int, uint64_t>, std::weak_ptr<LaunchSlot>> slots;
};

}  // namespace

std::shared_ptr<LaunchSlot> issuer_slot(int device, uint64_t issuer, bool any) {
  FirstSlots& all = FirstSlots::instance();
  std::lock_guard lock(all.mutex);
  const auto own = all.slots.find({device, issuer});
  std::shared_ptr<LaunchSlot> slot = own == all.slots.end() ? nullptr : own->second.lock();
  for (const auto& [key, other] : all.slots)
    if (any && slot == nullptr && key.first == device) slot = other.lock();
  return slot;
}

void offer_slot(int device, uint64_t issuer, const std::shared_ptr<LaunchSlot>& slot) {
  FirstSlots& all = FirstSlots::instance();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.slots, [](const auto& entry) { return entry.second.expired(); });
  all.slots.try_emplace({device, issuer}, slot);
}

}  // namespace weft::cuda
