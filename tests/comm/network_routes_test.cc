// Which streams GPUs of several hosts open: for FIFOs in host memory, for lanes, or for both.
#include "src/comm/network_routes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/comm/agreement.h"
#include "src/transport/arena.h"

namespace weft::test {
namespace {

using Route = NetworkLinks::Route;

// Ranks on these hosts.
std::vector<PeerInfo> ranks_on(std::initializer_list<uint64_t> hosts) {
  std::vector<PeerInfo> infos;
  for (const uint64_t host : hosts) infos.emplace_back().host = host;
  return infos;
}

NetLanes decided(int setting, const std::vector<PeerInfo>& infos, bool schedules, bool compresses) {
  Config config;
  config.net_lanes = setting;
  return decide_net_lanes(config, infos, schedules, compresses);
}

TEST(NetLanes, AreForCompressedCallsOnlyWhereRanksAreAloneOnTheirHosts) {
  const auto alone = ranks_on({1, 2, 3});
  EXPECT_EQ(decided(1, alone, false, false), NetLanes::kNone);
  EXPECT_EQ(decided(1, alone, false, true), NetLanes::kCoded);
}

TEST(NetLanes, AreForAllCallsWhereAskedOrWhereRanksShareHosts) {
  const auto alone = ranks_on({1, 2, 3}), sharing = ranks_on({1, 1, 2, 2});
  for (const bool compresses : {false, true}) {
    EXPECT_EQ(decided(1, alone, true, compresses), NetLanes::kAll) << "schedules";
    EXPECT_EQ(decided(2, alone, false, compresses), NetLanes::kAll) << "WEFT_NET_LANES=2";
    EXPECT_EQ(decided(1, sharing, false, compresses), NetLanes::kAll);
  }
}

// The networks are asked only where their answer counts: all ranks must take part.
TEST(NetLanes, AreForAllCallsWhereNicsReachTheMemoryOfGpus) {
  int asked = 0;
  const auto with_nics = [&](int setting, const std::vector<PeerInfo>& infos, bool reach) {
    Config config;
    config.net_lanes = setting;
    return decide_net_lanes(config, infos, false, false, [&] {
      asked++;
      return reach;
    });
  };
  const auto alone = ranks_on({1, 2, 3});
  EXPECT_EQ(with_nics(1, alone, true), NetLanes::kAll);
  EXPECT_EQ(with_nics(1, alone, false), NetLanes::kNone);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(with_nics(0, alone, true), NetLanes::kNone);
  EXPECT_EQ(with_nics(2, alone, false), NetLanes::kAll);
  EXPECT_EQ(with_nics(1, ranks_on({1, 1, 2}), false), NetLanes::kAll);
  EXPECT_EQ(with_nics(1, ranks_on({1, 1}), true), NetLanes::kNone);
  auto without = alone;
  without[1].p2p_disable = 1;
  EXPECT_EQ(with_nics(1, without, true), NetLanes::kNone);
  EXPECT_EQ(asked, 2);
}

TEST(NetLanes, DoNotExistOnOneHostOrWhereTheyAreForbidden) {
  EXPECT_EQ(decided(2, ranks_on({1, 1}), true, true), NetLanes::kNone);
  EXPECT_EQ(decided(0, ranks_on({1, 2}), true, true), NetLanes::kNone);
  auto without = ranks_on({1, 2});
  without[1].p2p_disable = 1;
  EXPECT_EQ(decided(2, without, true, true), NetLanes::kNone);
  without = ranks_on({1, 2});
  without[0].shm_disable = 1;
  EXPECT_EQ(decided(2, without, true, true), NetLanes::kNone);
}

// Rank 1 of 4, with a CPU node of another host as the fifth peer.
NetworkRoutes routes_with(NetLanes lanes) {
  RouteRequest request;
  request.peers = {0, 2, 3, 4};
  request.nranks = 4;
  request.lanes = lanes;
  request.to = [](int) { return 4; };
  request.from = [](int peer) { return peer == 0 ? 5 : 4; };
  return network_routes(request);
}

bool is_lane(const Route& route) { return route.channel >= NetworkLinks::kFirstLaneChannel; }

TEST(NetworkRoutes, AreFifosWithoutLanes) {
  const NetworkRoutes routes = routes_with(NetLanes::kNone);
  EXPECT_EQ(routes.outgoing.size(), 16u);
  EXPECT_EQ(routes.incoming.size(), 17u) << "rank 0 has one more channel to this rank";
  EXPECT_TRUE(std::none_of(routes.outgoing.begin(), routes.outgoing.end(), is_lane));
  for (size_t i = 0; i < routes.outgoing.size(); i++)
    EXPECT_EQ(routes.outgoing[i].channel == kPointToPointChannel, i >= 12)
        << "send/recv is not busy with collectives";
}

TEST(NetworkRoutes, AreLanesToRanksWhereAllCallsRunAsLanes) {
  const NetworkRoutes routes = routes_with(NetLanes::kAll);
  EXPECT_EQ(routes.outgoing.size(), size_t{3 * kLaneStreams});
  EXPECT_EQ(routes.incoming, routes.outgoing);
  for (const Route& route : routes.outgoing) {
    EXPECT_TRUE(is_lane(route));
    EXPECT_NE(route.peer, 4) << "a CPU node runs no lanes";
  }
}

TEST(NetworkRoutes, AreOneStreamOfLanesToEachRankWhereManyHostsHaveManyRanks) {
  EXPECT_EQ(lane_streams(16, 2), kLaneStreams);
  EXPECT_EQ(lane_streams(8, 8), kLaneStreams);
  EXPECT_EQ(lane_streams(128, 2), kLaneStreams) << "a rank talks to one other host at a time";
  RouteRequest request;
  for (int peer = 8; peer < 64; peer++) request.peers.push_back(peer);
  request.nranks = 64;
  request.lanes = NetLanes::kAll;
  request.lane_streams = lane_streams(64, 8);
  const NetworkRoutes routes = network_routes(request);
  EXPECT_EQ(routes.outgoing.size() + routes.incoming.size(), 112u) << "224 with two per rank";
}

TEST(NetworkRoutes, AreTheSameFifosAndThenLanesWhereCompressedCallsRunAsLanes) {
  const NetworkRoutes both = routes_with(NetLanes::kCoded), fifos = routes_with(NetLanes::kNone),
                      lanes = routes_with(NetLanes::kAll);
  const auto joined = [](std::vector<Route> first, const std::vector<Route>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  EXPECT_EQ(both.outgoing, joined(fifos.outgoing, lanes.outgoing));
  EXPECT_EQ(both.incoming, joined(fifos.incoming, lanes.incoming));
}

}  // namespace
}  // namespace weft::test
