// See first_uses.h.
#include "src/exec/first_uses.h"

#include <algorithm>

namespace weft {

FirstUses::Turn FirstUses::turn(std::span<const uint64_t> stream_ids) {
  static std::timed_mutex turns;
  bool any_new = false;
  for (const uint64_t id : stream_ids) {
    if (id != 0 && std::find(known_.begin(), known_.end(), id) != known_.end()) continue;
    any_new = true;
    if (id == 0) continue;
    if (known_.size() == kMostKnown) known_.erase(known_.begin());
    known_.push_back(id);
  }
  return any_new ? Turn(turns, kLongestWait) : Turn();
}

}  // namespace weft
