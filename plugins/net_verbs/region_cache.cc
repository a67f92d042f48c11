// See region_cache.h.
#include "plugins/net_verbs/region_cache.h"

namespace weft::net_verbs {

void deregister_region(ibv_mr* region) { verbs().dereg_mr(region); }

std::shared_ptr<ibv_mr> RegionCache::get(const Range& range, const std::function<ibv_mr*()>& make) {
  const std::lock_guard lock(mutex_);
  if (const auto it = regions_.find(range); it != regions_.end())
    if (auto known = it->second.lock()) return known;
  ibv_mr* made = make();
  if (made == nullptr) return nullptr;
  std::shared_ptr<ibv_mr> region(made, [this, range](ibv_mr* last) { drop(range, last); });
  regions_[range] = region;
  return region;
}

// The range may have a new region by now.
void RegionCache::drop(const Range& range, ibv_mr* region) {
  drop_(region);
  const std::lock_guard lock(mutex_);
  const auto it = regions_.find(range);
  if (it != regions_.end() && it->second.expired()) regions_.erase(it);
}

}  // namespace weft::net_verbs
