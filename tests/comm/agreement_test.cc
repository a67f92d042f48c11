// How ranks agree on one plan: contradictions, ranks that die meanwhile, and very many ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "src/base/error.h"
#include "src/comm/cluster.h"
#include "src/comm/control_channel.h"
#include "src/comm/unique_id.h"
#include "src/planner/init_plans.h"
#include "tests/support/cpu_time.h"
#include "tests/support/environment.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

// Prints the error text of init. Init must fail with the text in the argument.
WEFT_SCENARIO(fails_with) {
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRank(&comm, context.nranks, context.ids[0], context.rank);
  EXPECT_NE(result, ncclSuccess);
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_NE(text.find(context.argument), std::string::npos) << text;
}

TEST(Agreement, FailsOnAllRanksWithOneTextWhereSettingsDiffer) {
  struct Difference {
    const char *variable, *value;
  };
  for (const Difference& d : {Difference{"WEFT_TOPO", "ndv2"},
                              {"NCCL_ALGO", "ring"},
                              {"WEFT_PLAN", "all_reduce=ring"},
                              {"WEFT_SLICE_BYTES", "4K"},
                              {"WEFT_PACKET_BYTES", "64K"}}) {
    ProcessOptions options;
    options.argument = "rank 2 has ";
    options.environment = [&](int rank) {
      return rank == 2 ? std::map<std::string, std::string>{{d.variable, d.value}}
                       : std::map<std::string, std::string>{};
    };
    SCOPED_TRACE(d.variable);
    run_ranks_as_processes("fails_with", 4, options);
  }
}

TEST(Agreement, FailsOnAllRanksWithOneTextWhereRankZeroCannotPlan) {
  for (const char* topo : {"no-such-machine", "pcie-4x"}) {
    ProcessOptions options;
    options.argument = std::string("planning failed on rank 0: ");
    options.environment = [&](int) {
      return std::map<std::string, std::string>{{"WEFT_TOPO", topo}};
    };
    run_ranks_as_processes("fails_with", 5, options);
  }
}

// Rank 1 takes part in init until rank 0 has everything it needs for planning. Then it exits.
WEFT_SCENARIO(dies_while_planning) {
  if (context.rank == 1) {
    UniqueId id;
    std::memcpy(static_cast<void*>(&id), &context.ids[0], sizeof id);
    const Config config = Config::from_environment();
    const Deadline deadline = in_seconds(60);
    ControlChannel control(id.candidates(host_identity(config)), id.secret, 1, context.nranks,
                           deadline, [](const News&) {});
    const auto infos = gather_infos(control, config, {}, "", "", deadline);
    const auto settled =
        join_first_rank(control, id.secret, 1, infos, deadline, [](const News&) {}, {});
    settled->all_gather("moved", deadline);
    settled->collect("", deadline);
    _exit(0);
  }
  ncclComm_t comm = nullptr;
  EXPECT_NE(ncclCommInitRank(&comm, context.nranks, context.ids[0], context.rank), ncclSuccess);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("rank 1 died"), std::string::npos)
      << ncclGetLastError(nullptr);
}

// Planning for this machine takes long, because nothing is cached and the time limit is long.
TEST(Agreement, EndsOnAllRanksWhenOneDiesWhilePlansAreMade) {
  ProcessOptions options;
  options.environment = [](int) {
    return std::map<std::string, std::string>{
        {"WEFT_TOPO", "ndv2"}, {"WEFT_CACHE", "none"}, {"WEFT_SYNTHESIS_SECONDS", "5"}};
  };
  run_ranks_as_processes("dies_while_planning", 8, options);
}

// Runs all of init except the connections between ranks, which would need a million FIFOs.
double seconds_of_agreement_of_a_thousand() {
  constexpr int kRanks = 1024;
  const Config config = Config::from_environment();
  const UniqueId id = UniqueId::create();
  const ImportedSchedules none;
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> agreed{0};
  run_threads(
      kRanks,
      [&](int rank) {
        const Deadline deadline = in_seconds(60);
        ControlChannel control(id.candidates(host_identity(config)), id.secret, rank, kRanks,
                               deadline, [](const News&) {});
        std::vector<PeerInfo> infos = gather_infos(control, config, none, "", "", deadline);
        for (size_t r = 0; r < infos.size(); r++) infos[r].host = r / 8;
        const auto texts = control.collect(rank % 8 == 0 ? describe_host(config) : "", deadline);
        std::string decided;
        if (rank == 0) {
          const Cluster cluster = merge_hosts(infos, texts);
          EXPECT_EQ(cluster.hosts.size(), 128u);
          decided = make_init_plans({config,
                                     kRanks,
                                     false,
                                     {},
                                     cluster.machine,
                                     128,
                                     [](const ImportedSchedule&) { return true; }})
                        .encode();
        }
        const std::string plans = control.all_gather(decided, deadline)[0];
        agreed += CommunicatorPlans::decode(plans).table.machine.empty() ? 0 : 1;
        control.all_gather("", deadline);
        control.leave();
      },
      std::chrono::seconds(120));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("1024 ranks: %.2f s\n", took.count());
  EXPECT_EQ(agreed, kRanks);
  return took.count();
}

TEST(Agreement, OfAThousandRanksOn128HostsTakesSeconds) {
  if (kSanitized) GTEST_SKIP() << "too many threads for a sanitizer";
  const ScopedEnvironment environment{{"WEFT_TOPO", "dgx-h100x128"}, {"WEFT_CACHE", "none"}};
  double least = 1e9;
  for (int i = 0; i < 3 && least >= 10; i++)  // others may load the machine
    least = std::min(least, seconds_of_agreement_of_a_thousand());
  EXPECT_TRUE(in_time(least, 10));
}

}  // namespace
}  // namespace weft::test
