// Tests the reference and the harness: known encodings, exact inputs, guards that detect writes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/support/case_data.h"
#include "tests/support/number_types.h"
#include "tests/support/processes.h"
#include "tests/support/reference.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

TEST(NumberTypes, EncodeKnownValues) {
  EXPECT_EQ(encode(type_of(ncclFloat16), 1.0), 0x3c00u);
  EXPECT_EQ(encode(type_of(ncclFloat16), 65504.0), 0x7bffu);
  EXPECT_EQ(encode(type_of(ncclFloat16), 65520.0), 0x7c00u);  // rounds to infinity
  EXPECT_EQ(encode(type_of(ncclFloat16), 5.960464477539063e-08), 0x0001u);
  EXPECT_EQ(encode(type_of(ncclFloat16), 1.0 + 1.0 / 2048), 0x3c00u);  // a tie goes to even
  EXPECT_EQ(encode(type_of(ncclBfloat16), -2.5), 0xc020u);
  EXPECT_EQ(encode(type_of(ncclFloat8e4m3), 448.0), 0x7eu);
  EXPECT_EQ(encode(type_of(ncclFloat8e4m3), 1.0), 0x38u);
  EXPECT_EQ(encode(type_of(ncclFloat8e4m3), std::ldexp(1.0, -9)), 0x01u);
  EXPECT_EQ(encode(type_of(ncclFloat8e5m2), 57344.0), 0x7bu);
  EXPECT_EQ(encode(type_of(ncclFloat8e5m2), -1.5), 0xbeu);
}

TEST(NumberTypes, DecodeEndsOfTheRange) {
  EXPECT_EQ(decode(type_of(ncclFloat8e4m3), 0x7e), 448.0);
  EXPECT_TRUE(std::isnan(decode(type_of(ncclFloat8e4m3), 0x7f)));
  EXPECT_TRUE(std::isinf(decode(type_of(ncclFloat8e5m2), 0x7c)));
  EXPECT_TRUE(std::isnan(decode(type_of(ncclFloat8e5m2), 0x7d)));
  EXPECT_EQ(decode(type_of(ncclFloat16), 0x0400), std::ldexp(1.0, -14));
}

TEST(NumberTypes, EveryFinitePatternSurvivesTheRoundTrip) {
  for (const NumberType& type : all_types()) {
    if (!type.is_float) continue;
    for (uint64_t i = 0; i < 65536; ++i) {
      const uint64_t bits = (type.bytes <= 2 ? i : mix(i)) & type.mask();
      if (is_finite(type, bits)) {
        ASSERT_EQ(encode(type, decode(type, bits)), bits) << type.name;
      }
    }
  }
}

TEST(NumberTypes, AgreeWithTheCompilerOnFloat) {
  for (uint64_t i = 0; i < 20000; ++i) {
    const double value = std::ldexp(static_cast<double>(mix(i)), static_cast<int>(i % 300) - 230);
    const auto narrowed = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &narrowed, sizeof bits);
    ASSERT_EQ(encode(type_of(ncclFloat32), value), bits) << value;
  }
}

// Rounds after every step, and reduces in an order of its own.
uint64_t reduce_stepwise(const NumberType& type, Reduction reduction,
                         const std::vector<uint64_t>& column, bool backwards) {
  const int n = static_cast<int>(column.size());
  uint64_t result = 0;
  for (int k = 0; k < n; ++k) {
    const int r = backwards ? n - 1 - k : k;
    double v = decode(type, column[static_cast<size_t>(r)]);
    if (reduction == Reduction::kPreMulSum) v *= decode(type, premul_scalar(type, r));
    if (reduction == Reduction::kAvg) v /= n;
    const double so_far = decode(type, result);
    const double both = k == 0                          ? v
                        : reduction == Reduction::kProd ? so_far * v
                        : reduction == Reduction::kMax  ? std::max(so_far, v)
                        : reduction == Reduction::kMin  ? std::min(so_far, v)
                                                        : so_far + v;
    result = encode(type, both);
  }
  return result;
}

TEST(Reference, InputsReduceToTheSameBitsInAnyOrder) {
  for (const NumberType& type : all_types()) {
    if (!type.is_float) continue;
    for (Reduction reduction : all_reductions()) {
      for (int n : {1, 2, 3, 8, 16, 64}) {
        for (uint64_t i = 0; i < 200; ++i) {
          const auto column = reduction_column(type, reduction, n, 42, i);
          const uint64_t forwards = reduce_stepwise(type, reduction, column, false);
          if (!reduction_is_exact(type, reduction, n)) {
            ASSERT_TRUE(close_enough(type, reduction, column, forwards)) << type.name << " " << n;
            continue;
          }
          const uint64_t expected = reduce_column(type, reduction, column);
          ASSERT_EQ(forwards, expected) << type.name << " " << name_of(reduction) << " " << n;
          ASSERT_EQ(reduce_stepwise(type, reduction, column, true), expected)
              << type.name << " " << name_of(reduction) << " " << n;
        }
      }
    }
  }
}

TEST(Reference, EveryRankContributesSomewhere) {
  for (const NumberType& type : all_types()) {
    for (int r = 0; r < 16; ++r) {
      bool matters = false;
      for (uint64_t i = 0; i < 100 && !matters; ++i) {
        auto column = reduction_column(type, Reduction::kSum, 16, 7, i);
        const uint64_t with = reduce_column(type, Reduction::kSum, column);
        column[static_cast<size_t>(r)] = 0;
        matters = with != reduce_column(type, Reduction::kSum, column);
      }
      EXPECT_TRUE(matters) << type.name << " rank " << r;
    }
  }
}

TEST(Reference, IntegerAveragesTruncateTowardsZero) {
  const NumberType& type = type_of(ncclInt32);
  const std::vector<uint64_t> column = {static_cast<uint32_t>(-3), static_cast<uint32_t>(-4)};
  EXPECT_EQ(sign_extend(type, reduce_column(type, Reduction::kAvg, column)), -3);
}

TEST(GuardedBuffers, NoticeOneByteBeforeAndAfter) {
  GuardedBuffer buffer(100, Memory::kMalloc, 3);
  EXPECT_EQ(buffer.check_guards(), "");
  buffer.bytes()[-1] = 0;
  EXPECT_NE(buffer.check_guards(), "");
  buffer.bytes()[-1] = static_cast<char>(GuardedBuffer::kPoison);
  buffer.bytes()[100] = 0;
  EXPECT_NE(buffer.check_guards(), "");
}

WEFT_SCENARIO(prints_and_fails) {
  std::printf("hello from %d with %s\n", context.rank, context.argument.c_str());
  EXPECT_EQ(context.rank, 0);
}

WEFT_SCENARIO(never_ends) {
  while (context.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
}

TEST(Processes, ReportFailuresAndOutputOfEachRank) {
  ProcessOptions options;
  options.argument = "an argument";
  const auto results = run_processes("prints_and_fails", 2, options);
  EXPECT_EQ(results[0].exit_code, 0) << results[0].output;
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_NE(results[1].output.find("hello from 1 with an argument"), std::string::npos);
}

TEST(Processes, KillAndNameTheRankThatHangs) {
  std::vector<ProcessResult> results;
  for (int seconds : {1, 30}) {  // on a busy machine the others may not even start within 1 s
    ProcessOptions options;
    options.limit = std::chrono::seconds(seconds);
    results = run_processes("never_ends", 3, options);
    if (!results[0].hung && !results[2].hung) break;
  }
  EXPECT_FALSE(results[0].hung);
  EXPECT_TRUE(results[1].hung);
  EXPECT_FALSE(results[2].hung);
}

WEFT_SCENARIO(one_fails_another_waits) {
  ASSERT_NE(context.rank, 0);
  std::this_thread::sleep_for(std::chrono::minutes(10));
}

TEST(Processes, HaveLittleTimeLeftOnceOneHasFailed) {
  ProcessOptions options;
  options.limit = std::chrono::minutes(5);
  options.grace = std::chrono::milliseconds(100);
  const auto before = std::chrono::steady_clock::now();
  const auto results = run_processes("one_fails_another_waits", 2, options);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::minutes(4));
  EXPECT_EQ(results[0].exit_code, 1) << results[0].output;
  EXPECT_TRUE(results[1].hung);
}

}  // namespace
}  // namespace weft::test
