// What a rank tells the others about itself when it waits for long.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/comm/wait_chain.h"
#include "src/exec/activity.h"
#include "src/exec/call_history.h"

namespace weft {

struct StallReport {
  OperationState state;
  bool asks = false;  // it waits for long; otherwise this is an answer
  // A send or receive waits: earlier batches had so many of the same direction with that peer.
  uint64_t earlier = 0;
  bool needs_receive = false;  // it is a send that no FIFO can hold
  // The chain of waits that ends with this rank's. Empty: its waits say nothing about other calls.
  static constexpr size_t kMostHops = 64;
  static constexpr size_t kMostText = 255;  // of each of a hop's texts
  std::vector<WaitHop> hops;
  bool closed = false;  // `hops` is a deadlock
  // CallHistory::latest().
  static constexpr size_t kLatest = 16;
  std::array<CallRun, kLatest> latest;
  uint32_t runs = 0;  // the used ones of `latest`

  // The rank is about to leave, or tells one that is. Its sends to ranks of other hosts.
  enum class LastWords : uint8_t { kNone, kAsks, kTells };
  LastWords last_words = LastWords::kNone;
  uint64_t calls = 0;  // collectives begun
  struct Sends {
    int32_t peer = 0;
    uint64_t count = 0;
    bool operator==(const Sends&) const = default;
  };
  static constexpr size_t kMostSends = 64;
  std::vector<Sends> sends;

  // `runs`, hops, their texts and sends must not exceed their limits.
  std::string encode() const;
  // Any bytes may come. False if they are no report; `report` is as before then.
  static bool decode(std::string_view bytes, StallReport& report);
};

}  // namespace weft
