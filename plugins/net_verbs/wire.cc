// See wire.h.
#include "plugins/net_verbs/wire.h"

#include <algorithm>

namespace weft::net_verbs {

bool make_sane(Hello& hello) {
  if (hello.magic != Hello::kMagic || hello.rails == 0 || hello.rails > kMaxRails) return false;
  hello.host[sizeof hello.host - 1] = '\0';
  for (RailAddress& rail : hello.rail) {
    rail.device[sizeof rail.device - 1] = '\0';
    rail.gid_count = std::min<uint8_t>(rail.gid_count, RailAddress::kGids);
  }
  return true;
}

}  // namespace weft::net_verbs
