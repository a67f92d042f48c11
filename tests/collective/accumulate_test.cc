// WEFT_ACCUMULATE=float: sums of 16-bit floats are rounded once, whatever the plan.
#include <gtest/gtest.h>

#include "tests/support/environment.h"
#include "tests/support/number_types.h"
#include "tests/support/threads.h"
#include "weft.h"

namespace weft::test {
namespace {

constexpr int kSumRanks = 8;
constexpr size_t kSumCount = 3000;

// One rank has a large value, the others small ones that vanish if they are added to it one by one.
double value(const NumberType& type, int rank, size_t i) {
  const double large = type.id == ncclFloat16 ? 2048 : 256;
  return rank == static_cast<int>(i % kSumRanks) ? large : 0.75;
}
double exact_sum(const NumberType& type) { return value(type, 0, 0) + 0.75 * (kSumRanks - 1); }

// Elements that are not the exact sum, rounded once.
size_t rounded_otherwise(const NumberType& type, bool average, const char* kind) {
  std::atomic<size_t> others{0};
  const uint64_t expected = encode(type, exact_sum(type) / (average ? kSumRanks : 1));
  const bool scatters = std::string(kind) == "reduce_scatter";
  run_ranks_as_threads(kSumRanks, [&](int rank, ncclComm_t comm) {
    const size_t blocks = scatters ? kSumRanks : 1;
    std::vector<char> in(blocks * kSumCount * type.bytes), out(kSumCount * type.bytes);
    for (size_t i = 0; i < blocks * kSumCount; i++)
      store(type, encode(type, value(type, rank, i)), in.data() + i * type.bytes);
    WEFT_OK(weftPartitioned(comm, kind, in.data(), out.data(), kSumCount, type.id,
                            average ? ncclAvg : ncclSum, 3, 1, nullptr, nullptr, nullptr));
    if (std::string(kind) == "reduce" && rank != 3) return;
    for (size_t i = 0; i < kSumCount; i++)
      if (load(type, out.data() + i * type.bytes) != expected) others++;
  });
  return others;
}

TEST(Accumulate, InFloatRoundsOnce) {
  const std::pair<const char*, const char*> plans[] = {
      {"all_reduce", "ring"},          {"all_reduce", "tree"},   {"all_reduce", "recursive"},
      {"all_reduce", "halving"},       {"all_reduce", "direct"}, {"reduce_scatter", "ring"},
      {"reduce_scatter", "recursive"}, {"reduce", "ring"},       {"reduce", "tree"}};
  size_t worse = 0;
  for (const auto& [kind, plan] : plans)
    for (const NumberType& type : all_types()) {
      if (type.id != ncclFloat16 && type.id != ncclBfloat16) continue;
      const std::string forced = std::string(kind) + "=" + plan;
      for (const bool average : {false, true}) {
        const ScopedEnvironment set({{"WEFT_PLAN", forced}, {"WEFT_ACCUMULATE", "float"}});
        EXPECT_EQ(rounded_otherwise(type, average, kind), 0u)
            << forced << " " << type.name << (average ? " average" : "");
      }
      const ScopedEnvironment set({{"WEFT_PLAN", forced}, {"WEFT_ACCUMULATE", "type"}});
      worse += rounded_otherwise(type, false, kind) > 0 ? 1 : 0;
    }
  EXPECT_GE(worse, 8u) << "the values do not show whether plans round at every hop";
}

TEST(Accumulate, HasTwoSettings) {
  const ScopedEnvironment wrong({{"WEFT_ACCUMULATE", "double"}});
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclInvalidUsage);
}

}  // namespace
}  // namespace weft::test
