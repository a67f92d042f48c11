// The parts of the verbs plugin that need no device: addresses, rails, stripes, names, error texts.
#include <endian.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "plugins/net_verbs/connection.h"
#include "plugins/net_verbs/error_text.h"
#include "src/base/error.h"

namespace weft::test {
namespace {

using namespace net_verbs;  // NOLINT(google-build-using-namespace): it tests most of it

Gid gid(const std::string& text, uint16_t index, uint8_t version, uint8_t prefix_bits = 0) {
  Gid made;
  EXPECT_TRUE(parse_gid(text, made.bytes)) << text;
  made.index = index;
  made.version = version;
  made.prefix_bits = prefix_bits;
  return made;
}

// The table of a dual-stack RoCE port: every address twice, as v1 and as v2.
std::vector<Gid> usual_table() {
  return {gid("fe80::1", 0, 1), gid("fe80::1", 1, 2), gid("::ffff:10.1.2.3", 2, 1),
          gid("::ffff:10.1.2.3", 3, 2), gid("fd00:7::3", 5, 2)};
}

std::vector<int> chosen(const Config& config, std::string* said = nullptr) {
  std::vector<int> indices;
  std::string why;
  for (const Gid& g : usable_gids(usual_table(), config, 4, why)) indices.push_back(g.index);
  if (said != nullptr) *said = why;
  return indices;
}

TEST(RoceAddresses, AreOfVersion2WithIpv4FirstAndLinkLocalLast) {
  EXPECT_EQ(chosen({}), (std::vector<int>{3, 5, 1}));
}

TEST(RoceAddresses, FollowTheSettings) {
  Config config;
  config.ib_addr_family = "AF_INET6";
  EXPECT_EQ(chosen(config), (std::vector<int>{5, 3, 1}));
  config = {};
  config.ib_addr_range = "10.1.0.0/16";
  EXPECT_EQ(chosen(config), (std::vector<int>{3}));
  config = {};
  config.ib_roce_version = 1;
  EXPECT_EQ(chosen(config), (std::vector<int>{2, 0}));
  config.ib_gid_index = 5;
  EXPECT_EQ(chosen(config), (std::vector<int>{5}));
}

TEST(RoceAddresses, ThatDoNotExistAreExplained) {
  Config config;
  std::string why;
  config.ib_gid_index = 4;
  EXPECT_TRUE(chosen(config, &why).empty());
  EXPECT_NE(why.find("NCCL_IB_GID_INDEX"), std::string::npos) << why;
  EXPECT_NE(why.find("10.1.2.3 (index 3, RoCE v2)"), std::string::npos) << why;
  config = {};
  config.ib_addr_range = "192.168.0.0/16";
  EXPECT_TRUE(chosen(config, &why).empty());
  EXPECT_NE(why.find("192.168.0.0/16"), std::string::npos) << why;
}

TEST(RoceAddresses, AreChosenByASubnetThatIsWritten) {
  Config config;
  for (const char* range :
       {"10.0.0.0/abc", "10.0.0.0/", "10.0.0.0/8x", "10.0.0.0/ 8", "10.0.0.0/-1", "10.0.0.0/33",
        "fd00::/129", "10.0.0/8", "10.0.0.0/8/8", "nothing", "/8"}) {
    config.ib_addr_range = range;
    try {
      chosen(config);
      ADD_FAILURE() << "took " << range;
    } catch (const Error& error) {
      const std::string both = std::string("NCCL_IB_ADDR_RANGE=") + range + " is no subnet";
      EXPECT_NE(std::string(error.what()).find(both), std::string::npos) << error.what();
    }
  }
  config.ib_addr_range = "0.0.0.0/0";
  EXPECT_EQ(chosen(config), (std::vector<int>{3}));
  config.ib_addr_range = "::/0";
  EXPECT_EQ(chosen(config), (std::vector<int>{3, 5, 1}));
  config.ib_addr_range = "fd00:7::3";
  EXPECT_EQ(chosen(config), (std::vector<int>{5}));
}

TEST(RoceAddresses, AreReadFromSys) {
  std::string name = (std::filesystem::temp_directory_path() / "weft-gids-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path folder = name;
  std::filesystem::create_directories(folder / "gids");
  std::filesystem::create_directories(folder / "gid_attrs/types");
  std::ofstream(folder / "gids/0") << "fe80:0000:0000:0000:9443:3fff:fe82:3bd2\n";
  std::ofstream(folder / "gids/1") << "0000:0000:0000:0000:0000:ffff:0a08:0001\n";
  std::ofstream(folder / "gids/2") << "0000:0000:0000:0000:0000:0000:0000:0000\n";
  std::ofstream(folder / "gid_attrs/types/0") << "IB/RoCE v1\n";
  std::ofstream(folder / "gid_attrs/types/1") << "RoCE v2\n";
  const auto gids = read_gids(folder.string());
  ASSERT_EQ(gids.size(), 2u);
  EXPECT_EQ(describe(gids[0]), "fe80::9443:3fff:fe82:3bd2 (index 0, RoCE v1)");
  EXPECT_EQ(describe(gids[1]), "10.8.0.1 (index 1, RoCE v2)");
  std::filesystem::remove_all(folder);
}

TEST(RoceAddresses, OfTwoPortsAreTakenFromOneSubnet) {
  const std::vector<Gid> here = {gid("::ffff:10.1.0.1", 1, 2, 96 + 24),
                                 gid("::ffff:10.2.0.1", 3, 2, 96 + 24)};
  const std::vector<Gid> there = {gid("::ffff:10.2.0.9", 1, 2, 96 + 24)};
  GidPair pair;
  ASSERT_TRUE(match_gids(here, there, pair));
  EXPECT_EQ(pair.first, 1u);
  EXPECT_TRUE(pair.one_subnet);
  ASSERT_TRUE(match_gids({here[0]}, there, pair));
  EXPECT_FALSE(pair.one_subnet);
  EXPECT_FALSE(match_gids({gid("fd00::1", 0, 2)}, there, pair)) << "IPv6 with IPv4";
}

RailAddress rail(const std::string& address, uint32_t speed = 100000) {
  RailAddress made;
  std::strcpy(made.device, "nic");
  made.port = 1;
  made.ethernet = 1;
  made.gid_count = 1;
  made.gids[0] = gid(address, 1, 2, 96 + 24);
  made.speed_mbps = speed;
  return made;
}

std::vector<std::pair<int, int>> pairs_of(const std::vector<RailAddress>& a,
                                          const std::vector<RailAddress>& b) {
  std::vector<std::pair<int, int>> all;
  for (const RailPair& pair : pair_rails(a, b)) all.emplace_back(pair.first, pair.second);
  return all;
}

using Pairs = std::vector<std::pair<int, int>>;

TEST(Rails, OfOneSubnetGoTogether) {
  EXPECT_EQ(pairs_of({rail("::ffff:10.1.0.1"), rail("::ffff:10.2.0.1")},
                     {rail("::ffff:10.2.0.2"), rail("::ffff:10.1.0.2")}),
            (Pairs{{0, 1}, {1, 0}}));
}

TEST(Rails, OfOneFlatSubnetAreAllUsed) {
  EXPECT_EQ(pairs_of({rail("::ffff:10.1.0.1"), rail("::ffff:10.1.0.2")},
                     {rail("::ffff:10.1.0.3"), rail("::ffff:10.1.0.4")}),
            (Pairs{{0, 0}, {1, 1}}));
}

TEST(Rails, OfUnequalNumberShareTheFewerOnes) {
  const std::vector<RailAddress> two = {rail("::ffff:10.1.0.1"), rail("::ffff:10.1.0.2")};
  const std::vector<RailAddress> one = {rail("::ffff:10.1.0.3", 25000)};
  EXPECT_EQ(pairs_of(two, one), (Pairs{{0, 0}, {1, 0}}));
  EXPECT_EQ(pairs_of(one, two), (Pairs{{0, 0}, {0, 1}}));
  EXPECT_EQ(pair_rails(two, one)[0].speed_mbps, 25000u);
}

TEST(Rails, OfOtherSubnetsAreLeftOutWhereOneIsShared) {
  EXPECT_EQ(pairs_of({rail("::ffff:10.1.0.1")}, {rail("::ffff:10.2.0.2"), rail("::ffff:10.1.0.2")}),
            (Pairs{{0, 1}}));
  EXPECT_EQ(pairs_of({rail("::ffff:10.3.0.1")}, {rail("::ffff:10.2.0.2"), rail("::ffff:10.1.0.2")}),
            (Pairs{{0, 0}, {0, 1}}))
      << "routed";
}

TEST(Rails, OfDifferentKindsDoNotGoTogether) {
  RailAddress infiniband = rail("::ffff:10.1.0.1");
  infiniband.ethernet = 0;
  EXPECT_TRUE(pairs_of({infiniband}, {rail("::ffff:10.1.0.2")}).empty());
}

RailAddress spare(const std::string& address) {
  RailAddress made = rail(address);
  made.spare = 1;
  return made;
}

TEST(SpareRails, ArePairedBesidesTheOthers) {
  const auto pairs = pair_rails(std::vector{rail("::ffff:10.1.0.1"), spare("::ffff:10.2.0.1")},
                                std::vector{rail("::ffff:10.1.0.2"), spare("::ffff:10.2.0.2")});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_TRUE(pairs[0].first == 0 && pairs[0].second == 0 && !pairs[0].spare);
  EXPECT_TRUE(pairs[1].first == 1 && pairs[1].second == 1 && pairs[1].spare);
}

// Whichever rail of the usual pair fails, a spare pair does without it.
TEST(SpareRails, DoWithoutEitherRailOfAPairAcrossSubnets) {
  const auto pairs = pair_rails(std::vector{rail("::ffff:10.1.0.1"), spare("::ffff:10.2.0.1")},
                                std::vector{rail("::ffff:10.2.0.2"), spare("::ffff:10.1.0.2")});
  ASSERT_FALSE(pairs.empty());
  EXPECT_TRUE(pairs[0].first == 0 && pairs[0].second == 0 && !pairs[0].spare);
  bool without_first = false, without_second = false;
  for (const RailPair& pair : pairs) {
    EXPECT_EQ(pair.spare, &pair != &pairs[0]);
    without_first = without_first || pair.first != 0;
    without_second = without_second || pair.second != 0;
  }
  EXPECT_TRUE(without_first && without_second);
}

TEST(SpareRails, DoNotServeWhereTheOthersNeverCould) {
  RailAddress infiniband = rail("::ffff:10.1.0.1");
  infiniband.ethernet = 0;
  EXPECT_TRUE(pair_rails(std::vector{infiniband, spare("::ffff:10.2.0.1")},
                         std::vector{rail("::ffff:10.1.0.2")})
                  .empty());
}

// Together all stripes cover the message once.
void expect_covered(const Stripes& stripes, uint64_t size) {
  uint64_t at = 0;
  for (size_t s = 0; s < stripes.count; s++) {
    EXPECT_EQ(stripes.list[s].begin, at);
    at = stripes.list[s].end;
  }
  EXPECT_EQ(at, size);
}

TEST(LaneStripes, GoByTheRailsRates) {
  const std::vector<LaneRate> lanes = {{0, 0, 300000}, {1, 1, 100000}};
  const Division division(lanes, false);
  const Stripes stripes = division.divide(0, 64 << 20);
  ASSERT_EQ(stripes.count, 2u);
  EXPECT_EQ(stripes.list[0].end, 48u << 20);
  for (uint64_t size : {0ul, 1ul, 131072ul, 131073ul, 1000003ul})
    expect_covered(division.divide(3, size), size);
}

TEST(LaneStripes, OfSmallMessagesAreOneInTurn) {
  const std::vector<LaneRate> lanes = {{0, 0, 1000}, {1, 1, 1000}};
  const Division division(lanes, false);
  EXPECT_EQ(division.divide(0, 1000).count, 1u);
  EXPECT_NE(division.divide(0, 1000).list[0].lane, division.divide(1, 1000).list[0].lane);
}

TEST(LaneStripes, UseQueuePairsInTurnOrAllAsSplitSays) {
  // Two rails with two queue pairs each: lanes 0 and 1 on the first, 2 and 3 on the second.
  const std::vector<LaneRate> lanes = {{0, 0, 1000}, {1, 0, 1000}, {2, 1, 1000}, {3, 1, 1000}};
  const Division turns(lanes, false), all(lanes, true);
  const auto used = [](const Stripes& stripes) {
    std::vector<uint32_t> list;
    for (size_t s = 0; s < stripes.count; s++) list.push_back(stripes.list[s].lane);
    return list;
  };
  EXPECT_EQ(used(turns.divide(0, 1 << 20)), (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(used(turns.divide(1, 1 << 20)), (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(used(all.divide(0, 1 << 20)), (std::vector<uint32_t>{0, 1, 2, 3}));
}

TEST(Immediates, HoldWhatAPieceIs) {
  for (const Piece& piece : {Piece{31, 32, true, Piece::kMostBytes}, Piece{0, 1, false, 0}}) {
    const Piece back = Piece::unpack(piece.pack());
    EXPECT_EQ(back.slot, piece.slot);
    EXPECT_EQ(back.stripes, piece.stripes);
    EXPECT_EQ(back.last, piece.last);
    EXPECT_EQ(back.bytes, piece.bytes);
  }
}

TEST(FinishedMessages, AreThoseBeforeAndThoseBeyondAGap) {
  const Finished finished{100, 0b1010};
  EXPECT_TRUE(finished.has(99));
  EXPECT_FALSE(finished.has(100));
  EXPECT_TRUE(finished.has(101));
  EXPECT_FALSE(finished.has(102));
  EXPECT_TRUE(finished.has(103));
  EXPECT_FALSE(finished.has(200));
}

TEST(HcaNames, FollowNcclsRules) {
  EXPECT_TRUE(hca_matches("", "mlx5_0", 1));
  EXPECT_TRUE(hca_matches("mlx5", "mlx5_0", 1));
  EXPECT_FALSE(hca_matches("=mlx5", "mlx5_0", 1));
  EXPECT_TRUE(hca_matches("=mlx5_1,mlx5_0", "mlx5_0", 1));
  EXPECT_FALSE(hca_matches("^mlx5_0", "mlx5_0", 1));
  EXPECT_TRUE(hca_matches("^=mlx5_0", "mlx5_01", 1));
  EXPECT_FALSE(hca_matches("mlx5_0:2", "mlx5_0", 1));
  EXPECT_TRUE(hca_matches("mlx5_0:2", "mlx5_0", 2));
  EXPECT_TRUE(hca_matches("^mlx5_0:2", "mlx5_0", 1));
}

TEST(HcaNames, HavePortsThatAreNumbers) {
  for (const char* list : {"mlx5_0:abc", "mlx5_0:", "mlx5_0:1x", "mlx5_0:0", "mlx5_0:256",
                           "mlx5_0:-1", "mlx5_1,^mlx5_0:1:2"}) {
    try {
      hca_matches(list, "mlx5_3", 1);
      ADD_FAILURE() << "took " << list;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("NCCL_IB_HCA=") + list),
                std::string::npos)
          << error.what();
    }
  }
}

struct Regions {
  std::vector<ibv_mr> made = std::vector<ibv_mr>(8);
  size_t registered = 0;
  std::vector<ibv_mr*> dropped;
  RegionCache cache{[this](ibv_mr* region) { dropped.push_back(region); }};
  std::shared_ptr<const Region> get(const RegionCache::Range& range) {
    return cache.get(range, [this] { return Region{&made[registered++], {}}; });
  }
};

TEST(MemoryRegions, OfOneRangeAreRegisteredOnceAndDroppedByTheLastOwner) {
  Regions regions;
  auto first = regions.get({4096, 100}), second = regions.get({4096, 100});
  EXPECT_EQ(first, second);
  EXPECT_EQ(regions.registered, 1u);
  first.reset();
  EXPECT_TRUE(regions.dropped.empty());
  second.reset();
  EXPECT_EQ(regions.dropped, (std::vector<ibv_mr*>{regions.made.data()}));
  EXPECT_EQ(regions.get({4096, 100})->memory, &regions.made[1]) << "the memory may be another one";
}

TEST(MemoryRegions, OfOtherRangesAndOtherFilesAreOthers) {
  Regions regions;
  const auto a = regions.get({4096, 100}), longer = regions.get({4096, 200});
  const auto dmabuf = regions.get({4096, 100, 0, 7, 1}), later = regions.get({4096, 100, 0, 7, 2});
  EXPECT_EQ(regions.registered, 4u);
  EXPECT_EQ(regions.cache.get({8192, 100}, [] { return Region{}; }), nullptr);
  EXPECT_NE(regions.get({8192, 100}), nullptr) << "a refusal is not kept";
}

TEST(QueuePairs, HaveTheTrafficClassOnRoce) {
  LaneSettings settings = connection_settings({}, 105).lanes;
  settings.service_level = 3;
  const RailAddress here = rail("::ffff:10.1.0.1"), there = rail("::ffff:10.1.0.2");
  const ibv_qp_attr made =
      ready_to_receive(settings, here, here.gids[0], there, there.gids[0], {77, 5});
  EXPECT_EQ(made.ah_attr.grh.traffic_class, 105);
  EXPECT_EQ(made.ah_attr.sl, 3);
  EXPECT_EQ(made.ah_attr.is_global, 1);
  EXPECT_EQ(made.dest_qp_num, 77u);
  EXPECT_EQ(made.rq_psn, 5u);
  EXPECT_EQ(std::memcmp(made.ah_attr.grh.dgid.raw, there.gids[0].bytes.data(), 16), 0);
}

TEST(AdaptiveRouting, IsForInfinibandUnlessToldOtherwise) {
  RailAddress roce = rail("::ffff:10.1.0.1"), infiniband = roce;
  infiniband.ethernet = 0;
  Config config;
  const auto apart = [&](const RailAddress& own, uint64_t bytes) {
    return announces_apart(connection_settings(config, -1).lanes, own, bytes);
  };
  EXPECT_TRUE(apart(infiniband, 8193));
  EXPECT_FALSE(apart(infiniband, 8192));
  EXPECT_FALSE(apart(roce, 1 << 20));
  config.ib_adaptive_routing = 0;
  EXPECT_FALSE(apart(infiniband, 1 << 20));
  config.ib_adaptive_routing = 1;
  config.ib_ar_threshold = 100;
  EXPECT_TRUE(apart(roce, 101));
  EXPECT_FALSE(apart(roce, 100));
}

TEST(AdaptiveRouting, AnnouncesDataByAnEmptyWriteAfterIt) {
  const Piece piece{3, 1, true, 10000};
  const PieceRequests apart(piece, 1000, 7, 2000, 9, true),
      together(piece, 1000, 7, 2000, 9, false);
  ASSERT_EQ(apart.count, 2u);
  EXPECT_EQ(apart.list[0].opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(apart.list[0].sg_list[0].length, 10000u);
  EXPECT_EQ(apart.list[0].next, &apart.list[1]);
  EXPECT_EQ(apart.list[1].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(apart.list[1].num_sge, 0);
  EXPECT_EQ(apart.list[1].next, nullptr);
  EXPECT_EQ(apart.list[1].imm_data, htobe32(piece.pack()));
  ASSERT_EQ(together.count, 1u);
  EXPECT_EQ(together.list[0].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(together.list[0].sg_list[0].length, 10000u);
  EXPECT_EQ(together.list[0].next, nullptr);
  EXPECT_EQ(together.list[0].wr.rdma.remote_addr, 2000u);
  EXPECT_EQ(together.list[0].wr.rdma.rkey, 9u);
}

TEST(ConnectionSettings, StayWithinWhatDevicesTake) {
  Config config;
  config.ib_qps_per_connection = 100;
  config.ib_timeout = 99;
  config.ib_retry_cnt = 12;
  const ConnectionSettings settings = connection_settings(config, -1);
  EXPECT_EQ(settings.lanes.lanes_per_rail, kMaxLanesPerRail);
  EXPECT_EQ(settings.lanes.timeout, 31);
  EXPECT_EQ(settings.lanes.retries, 7);
  EXPECT_EQ(settings.lanes.traffic_class, 0);
  EXPECT_EQ(connection_settings(config, 106).lanes.traffic_class, 106);
  config.ib_tc = 41;
  EXPECT_EQ(connection_settings(config, 106).lanes.traffic_class, 41);
}

TEST(Words, AreThereForEveryFailure) {
  for (int s = IBV_WC_LOC_LEN_ERR; s <= IBV_WC_GENERAL_ERR; s++) {
    const Explanation words = explain(static_cast<ibv_wc_status>(s));
    EXPECT_GT(std::strlen(words.what), 10u) << s;
    EXPECT_GT(std::strlen(words.cause), 10u) << s;
  }
  EXPECT_STREQ(explain(IBV_WC_RETRY_EXC_ERR).what, "the peer's device did not answer");
  EXPECT_STREQ(explain(IBV_EVENT_PORT_ERR).what, "the port went down");
  EXPECT_EQ(explain(IBV_EVENT_COMM_EST).what, nullptr);
  EXPECT_TRUE(is_link_trouble(IBV_WC_RETRY_EXC_ERR));
  EXPECT_FALSE(is_link_trouble(IBV_WC_REM_ACCESS_ERR));
  EXPECT_NE(explain_registration(EFAULT, 10, true).find("nvidia-peermem"), std::string::npos);
}

}  // namespace
}  // namespace weft::test
