// See wait_chain.h.
#include "src/comm/wait_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace weft {

bool needs(const OperationState& state, int rank, int other) {
  if (state.waits_for == other && !state.waits_to_send) return true;
  switch (state.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return rank != state.root && other == state.root;
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather:
      return rank == state.root;
    case CollectiveKind::kSendRecv:
      return false;
    default:
      return true;  // every rank gets something from every other one
  }
}

bool is_certain(std::span<const WaitHop> hops) {
  return std::all_of(hops.begin(), hops.end(), [](const WaitHop& hop) { return hop.alone; });
}

std::string deadlock_in_words(std::span<const WaitHop> hops) {
  const auto before = [](const WaitHop& a, const WaitHop& b) {
    return std::tie(a.communicator, a.caller) < std::tie(b.communicator, b.caller);
  };
  const size_t first =
      static_cast<size_t>(std::min_element(hops.begin(), hops.end(), before) - hops.begin());
  std::string text =
      is_certain(hops)
          ? "deadlock: ranks make the calls of several communicators in different orders"
          : "this is a deadlock unless other threads of these processes make the missing calls";
  for (size_t i = 0; i < hops.size(); i++) {
    const WaitHop& hop = hops[(first + i) % hops.size()];
    text += fmt::format("{} {} waits for rank {} in {}", i == 0 ? ":" : ";", hop.who, hop.missing,
                        hop.what);
  }
  return text;
}

}  // namespace weft
