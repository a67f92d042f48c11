// A rail is a port of an RDMA device that a connection uses. This file pairs the rails of two
// hosts, and divides messages among the queue pairs (lanes) over them. Plain functions of data:
// both sides of a connection get the same result.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plugins/net_verbs/gids.h"

namespace weft::net_verbs {

inline constexpr size_t kMaxRails = 4;         // per side of a connection
inline constexpr size_t kMaxLanesPerRail = 8;  // queue pairs
inline constexpr size_t kMaxLanes = kMaxRails * kMaxLanesPerRail;

// On the wire: the data that a peer needs to reach a rail.
struct RailAddress {
  static constexpr size_t kGids = 4;
  char device[32] = {};
  uint8_t port = 0;
  uint8_t ethernet = 0;  // RoCE; otherwise InfiniBand
  uint8_t mtu = 0;       // ibv_mtu
  uint8_t gid_count = 0;
  uint16_t lid = 0;
  uint16_t spare = 0;  // serves only while the rails that are no spares do not
  uint32_t speed_mbps = 0;
  std::array<Gid, kGids> gids{};

  std::vector<Gid> gid_list() const { return {gids.begin(), gids.begin() + gid_count}; }
};

// "rxe0 port 1"
std::string describe(const RailAddress& rail);

// A pair of rails that connects two hosts.
struct RailPair {
  uint8_t first = 0, second = 0;  // rails of the connecting and of the listening side
  uint8_t first_gid = 0, second_gid = 0;
  uint32_t speed_mbps = 0;  // of the slower rail
  bool spare = false;
  bool operator==(const RailPair&) const = default;
};

// As many pairs as the side with more rails has, with every rail in use. But if some pairs are in
// one subnet, only those. Spares follow the other rails. Pairs of them are additional. Empty: no
// two rails that are no spares can reach each other.
std::vector<RailPair> pair_rails(std::span<const RailAddress> connecting,
                                 std::span<const RailAddress> listening);

struct Stripe {
  uint32_t lane = 0;
  uint64_t begin = 0, end = 0;
};
struct Stripes {
  std::array<Stripe, kMaxLanes> list;
  size_t count = 0;
};

// A lane's properties that matter for the division.
struct LaneRate {
  uint32_t lane = 0, pair = 0;
  uint32_t speed_mbps = 0;
};

// Divides messages among the working lanes. A message uses one queue pair of every rail, with
// shares by the rails' rates. The next message uses the next ones. `split`: every message uses all
// of them. Small messages use one lane each, round-robin.
class Division {
 public:
  static constexpr uint64_t kLeastShare = 64 << 10;  // bytes that justify one more lane

  Division() = default;
  Division(std::span<const LaneRate> lanes, bool split);
  Stripes divide(uint64_t message, uint64_t size) const;

 private:
  std::vector<std::vector<LaneRate>> rows_;
};

}  // namespace weft::net_verbs
