// What is known of the network between hosts, and how much data should be on its way there. Pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Of a usual connection. 0: not known, or within one machine.
struct NetFacts {
  double round_trip_us = 0, bytes_per_us = 0;

  std::string encode() const;
  static NetFacts decode(std::string_view text);  // nothing is known if it is no such text
};

// The median of each fact, of those that know it. One connection that was slow to answer does not
// count, for example because its thread waited for a core.
NetFacts usual_facts(const std::vector<NetFacts>& all);

// Bytes of a FIFO of lanes: two round trips' worth, because a sender hears of free slots one round
// trip after it has filled them. At least what loopback TCP wants, and bounded, because all FIFOs
// share a pool.
inline constexpr uint64_t kUsualFifoBytes = 1u << 20, kMostFifoBytes = 8u << 20;
uint64_t lane_fifo_bytes(const NetFacts& facts);

}  // namespace weft
