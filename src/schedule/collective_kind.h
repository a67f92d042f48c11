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
  kSendRecv,   // two ranks: 0 sends, 1 receives
  kAllToAllV,  // as kAllToAll, but every block has its own length
};
// Those of equal blocks, for which planners choose plans. kAllToAllV always has the same plan: a
// rank knows only the lengths of its own blocks.
inline constexpr int kCollectiveKinds = 9;
inline constexpr int kNamedKinds = kCollectiveKinds + 1;

}  // namespace weft
