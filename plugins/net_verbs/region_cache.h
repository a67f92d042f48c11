// The memory regions of a device, registered once each: a registration costs time, and room in the
// NIC. Thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "plugins/net_verbs/verbs_library.h"
#include "src/base/handles.h"

namespace weft::net_verbs {

struct Region {
  ibv_mr* memory = nullptr;
  Fd descriptor;  // of a dmabuf that other devices may need; otherwise empty
};

void deregister_region(ibv_mr* memory);

class RegionCache {
 public:
  struct Range {
    uint64_t address = 0, size = 0;
    uint64_t offset = 0, file_system = 0, inode = 0;  // of a dmabuf
    bool has_descriptor = false;
    auto operator<=>(const Range&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  explicit RegionCache(std::function<void(ibv_mr*)> drop = deregister_region)
      : drop_(std::move(drop)) {}

  // The region of this range. `make` registers it if nobody has it. nullptr: `make` could not. The
  // last owner deregisters it. Owners give it up before the memory is freed.
  std::shared_ptr<const Region> get(const Range& range, const std::function<Region()>& make);

 private:
  void drop(const Range& range, const Region* region);

  const std::function<void(ibv_mr*)> drop_;
  std::mutex mutex_;
  std::map<Range, std::weak_ptr<const Region>> regions_;
};

}  // namespace weft::net_verbs
