// See region_cache.h.
#include "plugins/net_verbs/region_cache.h"

#include <utility>

namespace weft::net_verbs {

void deregister_region(ibv_mr* memory) { verbs().dereg_mr(memory); }

std::shared_ptr<const Region> RegionCache::get(const Range& range,
                                               const std::function<Region()>& make) {
  const std::lock_guard lock(mutex_);
  if (const auto it = regions_.find(range); it != regions_.end())
    if (auto known = it->second.lock()) return known;
  Region made = make();
  if (made.memory == nullptr) return nullptr;
  std::shared_ptr<const Region> region(std::make_unique<Region>(std::move(made)).release(),
                                       [this, range](const Region* last) { drop(range, last); });
  regions_[range] = region;
  return region;
}

// The range may have a new region by now.
void RegionCache::drop(const Range& range, const Region* region) {
  const std::unique_ptr<const Region> owner(region);
  drop_(region->memory);
  const std::lock_guard lock(mutex_);
  const auto it = regions_.find(range);
  if (it != regions_.end() && it->second.expired()) regions_.erase(it);
}

}  // namespace weft::net_verbs
