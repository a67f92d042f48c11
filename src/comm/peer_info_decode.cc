// Reads a peer's info from its message.
#include <algorithm>
#include <cstring>

#include "src/comm/peer_info.h"

namespace weft {

std::optional<PeerInfo> decode_peer_info(const std::string& text) {
  PeerInfo info;
  if (text.size() != sizeof info) return std::nullopt;
  std::memcpy(static_cast<void*>(&info), text.data(), sizeof info);
  constexpr auto kMostAddresses = static_cast<int32_t>(std::size(PeerInfo{}.addresses));
  if (info.address_count < 0 || info.address_count > kMostAddresses || info.cores < 1)
    return std::nullopt;
  if (info.wire < 0 || info.wire > static_cast<int32_t>(Wire::kEncrypt)) return std::nullopt;
  if (info.gpu[sizeof info.gpu - 1] != 0 || info.unix_name[sizeof info.unix_name - 1] != 0 ||
      info.host_name[sizeof info.host_name - 1] != 0)
    return std::nullopt;
  return info;
}

}  // namespace weft
