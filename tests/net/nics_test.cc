// Which NICs routes take: those that the machine names, seen by a plugin with many devices.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "algorithms/catalogue/catalogue.h"
#include "plugins/net_socket/plugin.h"
#include "src/comm/nic_devices.h"
#include "src/planner/nic_plan.h"
#include "src/planner/plan_facts.h"
#include "src/transport/net_plugins.h"
#include "tests/support/conformance.h"
#include "tests/support/nic_bytes.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"
#include "weft.h"

namespace weft::test {
namespace {

WEFT_SCENARIO(a_few_calls) {
  with_communicator(context, [&](ncclComm_t comm) {
    Watchdog watchdog(context.rank + 1);
    run_cases(brief_cases(context.nranks), context.rank, context.nranks, comm, &watchdog);
  });
}

using Lines = std::set<std::string>;

Lines lines_of(const std::string& file) {
  Lines lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

// What the plugin of each rank saw. Ranks 0 to n/2-1 are one host, the others another one.
// `traced`: the NICs that the timeline names.
std::vector<Lines> nics_seen(const std::string& topo, int ranks, const std::string& nics,
                             Lines* traced = nullptr) {
  const auto log = [](int rank) {
    return testing::TempDir() + "weft-nics-" + std::to_string(getpid()) + "-" +
           std::to_string(rank);
  };
  ProcessOptions options;
  options.limit = std::chrono::seconds(120);
  options.environment = [&](int rank) {
    return std::map<std::string, std::string>{
        {"NCCL_HOSTID", rank < ranks / 2 ? "first" : "second"},
        {"NCCL_NET_PLUGIN", WEFT_TEST_PLUGINS "/libnccl-net-tiny11.so"},
        {"NCCL_NET", "tiny11"},
        {"WEFT_TOPO", topo},
        {"WEFT_TEST_NICS", nics},
        {"WEFT_TRACE", traced == nullptr ? "" : log(-1)},
        {"WEFT_TEST_NIC_LOG", log(rank)}};
  };
  run_ranks_as_processes("a_few_calls", ranks, options);
  std::vector<Lines> seen;
  for (int rank = 0; rank < ranks; rank++) {
    seen.push_back(lines_of(log(rank)));
    unlink(log(rank).c_str());
  }
  if (traced == nullptr) return seen;
  const std::string key = R"("nic":")";
  for (const std::string& line : lines_of(log(-1)))
    if (const size_t at = line.find(key); at != std::string::npos)
      traced->insert(
          line.substr(at + key.size(), line.find('"', at + key.size()) - at - key.size()));
  unlink(log(-1).c_str());
  return seen;
}

TEST(Nics, AreTheOnesNearestToTheGpu) {
  Lines traced;
  const auto seen = nics_seen("dgx-a100x2", 16, "nic0,nic1,nic2,nic3,nic4,nic5,nic6,nic7", &traced);
  // Those that weft explain names (plan_facts), without the host in front.
  EXPECT_EQ(traced, (Lines{"nic0", "nic1", "nic2", "nic3", "nic4", "nic5", "nic6", "nic7"}));
  for (size_t rank = 0; rank < seen.size(); rank++) {
    const std::string mine = "nic" + std::to_string(rank % 8);
    EXPECT_EQ(seen[rank], (Lines{"sends " + mine, "receives " + mine})) << "rank " << rank;
  }
}

TEST(Nics, ThatTheNetworkDoesNotHaveAreReplacedByTheFastest) {
  for (const Lines& lines : nics_seen("ndv2x2", 16, "slow,eth7"))
    EXPECT_EQ(lines, (Lines{"sends eth7", "receives eth7"}));
}

// The communicator's config has the traffic class of the argument.
WEFT_SCENARIO(traffic_of_a_class) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.trafficClass = std::stoi(context.argument);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, context.nranks, context.ids.at(0), context.rank, &config),
            ncclSuccess)
      << ncclGetLastError(nullptr);
  std::vector<int> data(1000, 1);
  EXPECT_EQ(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, comm, nullptr),
            ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// From version 10 on.
TEST(TrafficClasses, OfConfigsReachPlugins) {
  for (const std::string net : {"tiny10", "tiny11", "tiny12"}) {
    const std::string log = testing::TempDir() + "weft-class-" + std::to_string(getpid());
    ProcessOptions options;
    options.argument = "105";
    options.environment = [&](int rank) {
      auto all = separate_hosts(rank);
      all["NCCL_NET_PLUGIN"] = WEFT_TEST_PLUGINS "/libnccl-net-" + net + ".so";
      all["NCCL_NET"] = net;
      all["WEFT_TEST_NIC_LOG"] = log;
      return all;
    };
    run_ranks_as_processes("traffic_of_a_class", 2, options);
    const std::string nic = net + "dev";
    EXPECT_EQ(lines_of(log), (Lines{"sends " + nic, "receives " + nic, "traffic class 105"}));
    unlink(log.c_str());
  }
}

constexpr int kRoot = 3;

// "all_gather 5 1048576": so many calls, with arrays of so many bytes. An array holds the blocks of
// all ranks, where the collective has blocks.
WEFT_SCENARIO(counted_calls) {
  std::istringstream words(context.argument);
  std::string collective;
  int calls = 0;
  size_t bytes = 0;
  words >> collective >> calls >> bytes;
  with_communicator(context, [&](ncclComm_t comm) {
    const size_t array = bytes / sizeof(int), block = array / static_cast<size_t>(context.nranks);
    const bool gathers = collective == "all_gather" || collective == "gather";
    const bool scatters = collective == "reduce_scatter" || collective == "scatter";
    const bool exchanges = collective == "alltoall",
               sums = collective.starts_with("reduce") || collective == "all_reduce";
    const bool has_result =
        context.rank == kRoot || (collective != "gather" && collective != "reduce");
    std::vector<int> in(array, context.rank + 1), out(array, -1);
    for (int i = 0; i < calls; i++)
      ASSERT_EQ(weftPartitioned(comm, collective.c_str(), in.data(), out.data(),
                                gathers || scatters || exchanges ? block : array, ncclInt32,
                                ncclSum, kRoot, 1, nullptr, nullptr, nullptr),
                ncclSuccess)
          << ncclGetLastError(comm);
    if (!has_result) return;
    const int sum = context.nranks * (context.nranks + 1) / 2, of_root = kRoot + 1;
    EXPECT_EQ(out[0], sums ? sum : gathers || exchanges ? 1 : of_root);
    EXPECT_EQ(out[(scatters ? block : array) - 1], sums                   ? sum
                                                   : gathers || exchanges ? context.nranks
                                                                          : of_root);
  });
}

// The least that a collective sends between hosts, in arrays.
double least(const std::string& collective, const std::vector<int>& host_of) {
  std::map<int, double> ranks;  // of each host
  for (const int host : host_of) ranks[host]++;
  const auto n = static_cast<double>(host_of.size()), hosts = static_cast<double>(ranks.size());
  if (collective == "all_reduce") return 2 * (hosts - 1);
  if (collective == "gather" || collective == "scatter") return (n - ranks[host_of[kRoot]]) / n;
  if (collective != "alltoall") return hosts - 1;
  double blocks = 0;
  for (const auto& [host, mine] : ranks) blocks += mine * (n - mine);
  return blocks / n;
}

constexpr const char* kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter", "alltoall",
                                        "broadcast",  "reduce",     "gather",         "scatter"};

// Every chunk crosses the network as often as it must, and no more. Messages have headers.
void expect_least_bytes(const std::vector<int>& hosts, const std::string& topo, size_t bytes) {
  constexpr int kCalls = 2;
  for (const std::string collective : kCollectives) {
    const std::string calls = fmt::format("{} {} {}", collective, kCalls, bytes);
    const double one = nic_bytes("counted_calls", calls, topo, hosts) / kCalls;
    const double bound = least(collective, hosts) * static_cast<double>(bytes);
    EXPECT_GE(one, bound) << collective;
    EXPECT_LE(one, 1.005 * bound) << collective;
    std::printf("%-14s %.4f of the bound\n", collective.c_str(), one / bound);
  }
}

TEST(Nics, CarryWhatTheBoundSays) {
  if (kSanitized) GTEST_SKIP() << "sanitized: searches for plans take too long";
  expect_least_bytes({0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}, "ndv2x2", size_t{16} << 20);
}

TEST(Nics, OfTwoHostsCarryWhatTheBoundSays) {
  expect_least_bytes({0, 0, 0, 0, 1, 1, 1, 1}, "", size_t{8} << 20);
}

TEST(Nics, OfFourHostsCarryWhatTheBoundSays) {
  expect_least_bytes({0, 0, 1, 1, 2, 2, 3, 3}, "", size_t{8} << 20);
}

TEST(Nics, OfUnequalHostsCarryWhatTheBoundSays) {
  expect_least_bytes({0, 0, 0, 1, 1, 2}, "", size_t{6} << 20);
}

std::shared_ptr<Network> tests_network() {
  NetRequest request;
  request.plugins = WEFT_TEST_PLUGINS "/libnccl-net-tiny11.so";
  request.plugins_given = true;
  request.net_name = "tiny11";
  return choose_network(request, built_in_table(net_socket::kNetV12, net_socket::kExtension));
}

// The plugin is loaded in a process of its own: it reads its devices once.
WEFT_SCENARIO(places_routes) {
  const auto network = tests_network();
  NicPlan plan;
  plan.of_rank = {{"b", "c"}, {"a"}};
  plan.routes = {{0, 1, 5, "a", "d"}, {0, 1, 6, "no such NIC", "a"}};
  NicDevices first(*network, plan, 0), second(*network, plan, 1);
  EXPECT_EQ(first.place(1, 5, true), 0) << "a, as the schedule says";
  EXPECT_EQ(second.place(0, 5, false), 3) << "d, at the other end";
  EXPECT_EQ(second.place(0, 5, true), 0) << "a, its own";
  // Two equal NICs take routes in turn.
  std::multiset<int> others;
  for (int channel = 6; channel < 10; channel++) others.insert(first.place(1, channel, true));
  EXPECT_EQ(others, (std::multiset<int>{1, 1, 2, 2}));
}

// Of each device, how many of so many routes it gets.
std::map<int, int> routes_of(Network& network, const NicPlan& plan, int routes) {
  NicDevices devices(network, plan, 0);
  std::map<int, int> placed;
  for (int channel = 0; channel < routes; channel++) placed[devices.place(1, channel, true)]++;
  return placed;
}

WEFT_SCENARIO(places_routes_by_speed) {
  const auto network = tests_network();
  using Placed = std::map<int, int>;
  const auto plan_for = [](std::vector<std::string> names) {
    NicPlan plan;
    plan.of_rank = {std::move(names)};
    return plan;
  };
  EXPECT_EQ(routes_of(*network, plan_for({"fast", "slower"}), 9), (Placed{{0, 6}, {1, 3}}));
  EXPECT_EQ(routes_of(*network, plan_for({"slower", "fast"}), 9), (Placed{{0, 6}, {1, 3}}));
  EXPECT_EQ(routes_of(*network, plan_for({"fast", "slower", "slow3"}), 21),
            (Placed{{0, 12}, {1, 6}, {2, 3}}));
  EXPECT_EQ(routes_of(*network, plan_for({"slower", "gone"}), 4), (Placed{{1, 4}}))
      << "what the network does not have gets nothing";
  EXPECT_EQ(routes_of(*network, plan_for({"gone"}), 4), (Placed{{0, 4}})) << "the fastest serves";
  EXPECT_EQ(routes_of(*network, {}, 4), (Placed{{0, 4}}));
  NicPlan routed = plan_for({"fast", "slower"});
  routed.routes = {{0, 1, 2, "gone", "fast"}, {0, 1, 3, "slow3", "fast"}};
  EXPECT_EQ(routes_of(*network, routed, 7), (Placed{{0, 4}, {1, 2}, {2, 1}}))
      << "a route to what is gone is placed as others are";
}

TEST(Nics, AreThoseThatSchedulesName) {
  ProcessOptions options;
  options.environment = [](int) {
    return std::map<std::string, std::string>{{"WEFT_TEST_NICS", "a,b,c,d"}};
  };
  run_ranks_as_processes("places_routes", 1, options);
}

TEST(Nics, GetRoutesByTheirSpeeds) {
  ProcessOptions options;
  options.environment = [](int) {
    return std::map<std::string, std::string>{
        {"WEFT_TEST_NICS", "fast:100000,slower:50000,slow3:25000"}};
  };
  run_ranks_as_processes("places_routes_by_speed", 1, options);
}

TEST(Nics, OfThePlanAreThoseOfTheRoutes) {
  const Machine machine = load_machine("dgx-h100x2");
  const NicPlan plan = nic_plan(machine, {});
  ASSERT_EQ(plan.of_rank.size(), 16u);
  for (size_t rank = 0; rank < 16; rank++) {
    ASSERT_FALSE(plan.of_rank[rank].empty());
    EXPECT_EQ(plan.of_rank[rank][0], plan.of_rank[rank % 8][0]) << "names are those of the host";
  }
  NicPlan more = plan;
  more.routes = {{3, 9, 1, "nic5", "nic6"}};
  const NicPlan same = NicPlan::decode(more.encode());
  EXPECT_EQ(same.of_rank, more.of_rank);
  EXPECT_EQ(same.distance, more.distance);
  EXPECT_EQ(same.distance, std::vector(16, PathClass::kPcieSwitch));
  EXPECT_EQ(same.routes, more.routes);
  EXPECT_TRUE(same.routes[0].serves(3, 9, 1, true) && same.routes[0].serves(9, 3, 1, false));
  EXPECT_FALSE(same.routes[0].serves(3, 9, 0, true) || same.routes[0].serves(9, 3, 1, true));
  EXPECT_TRUE(nic_plan(load_machine("dgx-h100"), {}).of_rank.empty()) << "one host needs none";
}

TEST(NicPlans, LetRanksOfDifferentRailsMeet) {
  const NicPlan plan = nic_plan(load_machine(WEFT_TEST_DATA "/machines/soft_roce.json"), {});
  ASSERT_EQ(plan.routes.size(), 4u);
  EXPECT_EQ(plan.routes.front(), (NicPlan::Route{0, 3, -1, "weft_a1", "weft_b1"}));
  EXPECT_TRUE(plan.routes.front().serves(0, 3, 5, true));
  EXPECT_FALSE(plan.routes.front().serves(0, 2, 5, true));
  EXPECT_EQ(NicPlan::decode(plan.encode()).routes, plan.routes);
  EXPECT_TRUE(nic_plan(load_machine("dgx-a100x2"), {}).routes.empty()) << "one network joins all";
}

}  // namespace
}  // namespace weft::test
