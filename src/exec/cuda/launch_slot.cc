// See launch_slot.h.
#include "src/exec/cuda/launch_slot.h"

#include <map>
#include <utility>
#include <vector>

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

// A rank's use of a slot.
struct SlotUse {
  SlotUse(std::shared_ptr<LaunchSlot> used, uint64_t by) : slot(std::move(used)), group(by) {}
  SlotUse(const SlotUse&) = delete;
  SlotUse& operator=(const SlotUse&) = delete;
  ~SlotUse() {
    std::lock_guard lock(FirstSlots::instance().mutex);
    slot->groups.erase(group);
  }
  const std::shared_ptr<LaunchSlot> slot;
  const uint64_t group;
};

}  // namespace

std::shared_ptr<LaunchSlot> claim_slot(int device, uint64_t issuer, uint64_t group, bool any) {
  FirstSlots& all = FirstSlots::instance();
  std::shared_ptr<LaunchSlot> slot;
  // Slots end outside the lock: the last pointer to one may be here.
  std::vector<std::shared_ptr<LaunchSlot>> seen;
  std::lock_guard lock(all.mutex);
  const auto usable = [&](const std::weak_ptr<LaunchSlot>& offered) {
    seen.push_back(offered.lock());
    return seen.back() != nullptr && !seen.back()->groups.contains(group);
  };
  const auto own = all.slots.find({device, issuer});
  if (own != all.slots.end() && usable(own->second)) slot = seen.back();
  for (const auto& [key, other] : all.slots)
    if (any && slot == nullptr && key.first == device && usable(other)) slot = seen.back();
  if (slot == nullptr) return nullptr;
  slot->groups.insert(group);
  const auto use = std::make_shared<SlotUse>(slot, group);
  return {use, slot.get()};
}

void offer_slot(int device, uint64_t issuer, const std::shared_ptr<LaunchSlot>& slot) {
  FirstSlots& all = FirstSlots::instance();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.slots, [](const auto& entry) { return entry.second.expired(); });
  all.slots.try_emplace({device, issuer}, slot);
}

}  // namespace weft::cuda
