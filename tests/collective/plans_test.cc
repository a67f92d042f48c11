// Conformance of every generator, forced by WEFT_PLAN. Messages are split into small pieces, and
// data is lent or copied.
#include <gtest/gtest.h>

#include "algorithms/generators/generators.h"
#include "tests/support/conformance.h"
#include "tests/support/environment.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

CollectiveKind kind_of(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return CollectiveKind::kAllReduce;
    case Operation::kReduce:
      return CollectiveKind::kReduce;
    case Operation::kBroadcast:
    case Operation::kBcast:
      return CollectiveKind::kBroadcast;
    case Operation::kAllGather:
      return CollectiveKind::kAllGather;
    case Operation::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case Operation::kAlltoAll:
      return CollectiveKind::kAllToAll;
    case Operation::kGather:
      return CollectiveKind::kGather;
    case Operation::kScatter:
      return CollectiveKind::kScatter;
    default:
      return CollectiveKind::kSendRecv;
  }
}

struct Cutting {
  const char *name, *slice_bytes, *ring_bytes, *zero_copy_bytes;
  size_t most_elements;
};
constexpr Cutting kCuttings[] = {
    {"AsUsual", "64K", "512K", "8K", 50000},
    {"AllLent", "64K", "512K", "1", 50000},
    {"SlicesOf64BytesCopied", "64", "512", "1G", 700},
    {"SlicesOf64BytesLent", "64", "512", "1", 700},
    {"SlicesOf192BytesCopied", "192", "4K", "1G", 2000},
    {"SlicesOf256BytesMixed", "256", "2K", "200", 2000},
};

// Generators that the host can run. peer_memory needs GPUs that reach each other's memory.
std::vector<size_t> host_generators() {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < generators().size(); i++)
    if (!generators()[i].peer_memory && generators()[i].name != kSendRecv.name)
      numbers.push_back(i);
  return numbers;
}

using Plan = std::tuple<size_t, Cutting>;
class ForcedPlan : public testing::TestWithParam<Plan> {};

TEST_P(ForcedPlan, GivesTheReferenceResults) {
  const Generator& generator = generators()[std::get<0>(GetParam())];
  const Cutting& cutting = std::get<1>(GetParam());
  int cases_run = 0;
  for (const int n : {2, 3, 4, 5, 7, 8}) {
    if (kSanitized && n != 3 && n != 4) continue;
    std::string plan;
    const auto supported = [&](Operation operation) {
      return generator.supports({kind_of(operation), n, n - 1}) &&
             operation != Operation::kSendRecv;
    };
    for (const Operation operation : all_operations())
      if (supported(operation) && operation != Operation::kBcast)
        plan += (plan.empty() ? "" : ",") + std::string(name(kind_of(operation))) + "=" +
                std::string(generator.name);
    std::vector<Case> cases;
    for (const auto& list :
         {brief_cases(n), random_cases(n, test_samples(60), mix(test_seed(), 21))})
      for (Case c : list) {
        if (!supported(c.operation)) continue;
        if (c.count > cutting.most_elements) c.count %= cutting.most_elements;
        cases.push_back(c);
      }
    if (cases.empty()) continue;
    cases_run += static_cast<int>(cases.size());
    const ScopedEnvironment environment{{"WEFT_PLAN", plan},
                                        {"WEFT_SLICE_BYTES", cutting.slice_bytes},
                                        {"WEFT_RING_BYTES", cutting.ring_bytes},
                                        {"WEFT_ZERO_COPY_BYTES", cutting.zero_copy_bytes}};
    Watchdog watchdog(n);
    run_ranks_as_threads(
        n, [&](int rank, ncclComm_t comm) { run_cases(cases, rank, n, comm, &watchdog); },
        std::chrono::minutes(10));
  }
  EXPECT_GT(cases_run, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ForcedPlan,
                         testing::Combine(testing::ValuesIn(host_generators()),
                                          testing::ValuesIn(kCuttings)),
                         [](const auto& tested) {
                           return std::string(generators()[std::get<0>(tested.param)].name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

TEST(WeftPlan, ThatCannotBeFollowedIsAnErrorWithItsName) {
  const ScopedEnvironment environment{{"WEFT_PLAN", "alltoall=ring"}};
  run_ranks_as_threads(2, [](int, ncclComm_t comm) {
    int in[2] = {1, 2}, out[2] = {};
    EXPECT_EQ(ncclAlltoAll(in, out, 1, ncclInt32, comm, nullptr), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("WEFT_PLAN"), std::string::npos)
        << ncclGetLastError(comm);
  });
}

}  // namespace
}  // namespace weft::test
