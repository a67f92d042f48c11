// The kinds of collectives, for host and device.
#pragma once

#include <cstdint>

namespace weft {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,  // two ranks: 0 sends, 1 receives
};
inline constexpr int kCollectiveKinds = 9;

}  // namespace weft
