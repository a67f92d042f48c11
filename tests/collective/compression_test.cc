// Compression between hosts: what the environment and weftCommSetCompression() ask is what runs.
// Every process is its own host here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/comm/checks.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"
#include "weft.h"

namespace weft::test {
namespace {

constexpr size_t kCount = 1u << 18;  // floats of the smallest array that is compressed

std::vector<float> input_of(int rank, size_t n, int call = 0) {
  std::vector<float> values(n);
  Random random(mix(static_cast<uint64_t>(rank) + 1, static_cast<uint64_t>(call)));
  for (float& value : values) {
    const uint64_t bits = random.next();
    value = -2;
    for (int k = 0; k < 4; k++) value += static_cast<float>(bits >> 16 * k & 0xffff) / 65535.0f;
  }
  return values;
}

std::vector<double> sum_of(int nranks, size_t n, int call = 0) {
  std::vector<double> sum(n);
  for (int r = 0; r < nranks; r++) {
    const std::vector<float> input = input_of(r, n, call);
    for (size_t i = 0; i < n; i++) sum[i] += input[i];
  }
  return sum;
}

double relative_error(const float* got, const double* want, size_t n) {
  double wrong = 0, all = 0;
  for (size_t i = 0; i < n; i++) {
    wrong += std::pow(got[i] - want[i], 2);
    all += std::pow(want[i], 2);
  }
  return std::sqrt(wrong / all);
}

// All ranks' bytes are equal. The exchange is of integers, which nothing compresses.
void expect_equal_bits(ncclComm_t comm, int nranks, const std::vector<float>& mine) {
  const size_t n = mine.size();
  std::vector<float> all(n * static_cast<size_t>(nranks));
  WEFT_OK(ncclAllGather(mine.data(), all.data(), n, ncclInt32, comm, nullptr));
  for (int r = 0; r < nranks; r++)
    EXPECT_EQ(std::memcmp(all.data() + n * static_cast<size_t>(r), mine.data(), 4 * n), 0)
        << "rank " << r;
}

weftCompression_t report_of(ncclComm_t comm) {
  weftCompression_t report{};
  WEFT_OK(weftCompressionReport(comm, &report));
  return report;
}

// The argument is the largest relative error.
WEFT_SCENARIO(compressed_sums) {
  with_communicator(context, [&](ncclComm_t comm) {
    const int n = context.nranks;
    const double most = std::stod(context.argument);
    for (const size_t count : {kCount, kCount + 7, kCount + 12345}) {
      const std::vector<float> input = input_of(context.rank, count);
      const std::vector<double> exact = sum_of(n, count);
      std::vector<float> output(count);
      WEFT_OK(
          ncclAllReduce(input.data(), output.data(), count, ncclFloat32, ncclSum, comm, nullptr));
      const double error = relative_error(output.data(), exact.data(), count);
      EXPECT_LE(error, most);
      EXPECT_GT(error, 1e-4) << "it was not compressed";
      expect_equal_bits(comm, n, output);
      // In place, and as an average.
      std::vector<float> both = input;
      WEFT_OK(ncclAllReduce(both.data(), both.data(), count, ncclFloat32, ncclAvg, comm, nullptr));
      for (float& value : both) value *= static_cast<float>(n);
      EXPECT_LE(relative_error(both.data(), exact.data(), count), most);
    }
    const weftCompression_t report = report_of(comm);
    EXPECT_EQ(report.calls, 6u);
    EXPECT_LE(static_cast<double>(report.bytes_after),
              0.26 * static_cast<double>(report.bytes_before));
    EXPECT_GT(report.bytes_after, 0u);
    EXPECT_EQ(report.passes, n == 2 ? 1 : 2);
    EXPECT_NEAR(report.bound, 1.0 / 254, 1e-5);
  });
}

ProcessOptions with_setting(const std::string& setting, const std::string& argument) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(120);
  options.argument = argument;
  options.environment = [setting](int rank) {
    auto environment = separate_hosts(rank);
    environment["WEFT_COMPRESS"] = setting;
    return environment;
  };
  return options;
}

TEST(Compression, OfSumsIsAsExactAsPromisedAndTheSameOnAllRanks) {
  for (const int n : {2, 4})
    run_ranks_as_processes("compressed_sums", n, with_setting("all_reduce=int8", "1e-2"));
}

WEFT_SCENARIO(compressed_shards) {
  with_communicator(context, [&](ncclComm_t comm) {
    const int n = context.nranks;
    const auto rank = static_cast<size_t>(context.rank);
    const size_t shard = kCount / static_cast<size_t>(n) + 3;
    // A shard is kept exact by its owner, in place too.
    std::vector<float> all(shard * static_cast<size_t>(n));
    const std::vector<float> mine = input_of(context.rank, shard);
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(rank * shard));
    WEFT_OK(
        ncclAllGather(all.data() + rank * shard, all.data(), shard, ncclFloat32, comm, nullptr));
    EXPECT_EQ(std::memcmp(all.data() + rank * shard, mine.data(), 4 * shard), 0);
    for (int r = 0; r < n; r++) {
      const std::vector<float> theirs = input_of(r, shard);
      const std::vector<double> exact(theirs.begin(), theirs.end());
      const double error =
          relative_error(all.data() + static_cast<size_t>(r) * shard, exact.data(), shard);
      EXPECT_LE(error, 1e-2);
      EXPECT_EQ(error > 0, r != context.rank) << r;
    }
    const std::vector<float> input = input_of(context.rank, shard * static_cast<size_t>(n));
    const std::vector<double> exact = sum_of(n, input.size());
    std::vector<float> output(shard);
    WEFT_OK(
        ncclReduceScatter(input.data(), output.data(), shard, ncclFloat32, ncclSum, comm, nullptr));
    const double error = relative_error(output.data(), exact.data() + rank * shard, shard);
    EXPECT_LE(error, 0.18);
    EXPECT_GT(error, 0.02);
    EXPECT_EQ(report_of(comm).calls, 2u);
  });
}

TEST(Compression, OfShardsLeavesTheOwnersAlone) {
  run_ranks_as_processes("compressed_shards", 3,
                         with_setting("all_gather=int8,reduce_scatter=int4", ""));
}

// Many calls with the same data: their mean is exact with feedback, and only with it.
WEFT_SCENARIO(feedback) {
  with_communicator(context, [&](ncclComm_t comm) {
    const size_t count = kCount;
    const std::vector<float> input = input_of(context.rank, count);
    const std::vector<double> exact = sum_of(context.nranks, count);
    std::vector<float> output(count), mean(count);
    const int calls = 30;
    double first = 0;
    for (int k = 0; k < calls; k++) {
      WEFT_OK(
          ncclAllReduce(input.data(), output.data(), count, ncclFloat32, ncclSum, comm, nullptr));
      if (k == 0) first = relative_error(output.data(), exact.data(), count);
      for (size_t i = 0; i < count; i++) mean[i] += output[i] / calls;
    }
    const double last = relative_error(mean.data(), exact.data(), count);
    if (context.argument == "feedback") {
      EXPECT_LT(last, first / 3) << first;
    } else {
      EXPECT_GT(last, first / 1.5) << first;
    }
    expect_equal_bits(comm, context.nranks, output);
  });
}

TEST(Compression, FeedbackMakesGoodWhatEncodingsLose) {
  for (const char* codec : {"int4", "onebit", "topk:density=0.2"})
    run_ranks_as_processes(
        "feedback", 2, with_setting("all_reduce=" + std::string(codec) + ":feedback", "feedback"));
  run_ranks_as_processes("feedback", 2, with_setting("all_reduce=int4", "none"));
  run_ranks_as_processes("feedback", 3, with_setting("all_reduce=int4:feedback", "feedback"));
}

// Rank 1 has another setting.
WEFT_SCENARIO(differs) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, context.nranks, context.ids[0], context.rank),
            ncclInvalidUsage);
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_NE(text.find("int4"), std::string::npos) << text;
  EXPECT_NE(text.find("int8"), std::string::npos) << text;
}

TEST(Compression, SettingsThatDifferAreAnErrorOnAllRanksThatNamesBoth) {
  ProcessOptions options = with_setting("all_reduce=int8", "");
  options.environment = [](int rank) {
    auto environment = separate_hosts(rank);
    environment["WEFT_COMPRESS"] = rank == 1 ? "all_reduce=int4" : "all_reduce=int8";
    return environment;
  };
  run_ranks_as_processes("differs", 3, options);
}

WEFT_SCENARIO(set_by_call) {
  with_communicator(context, [&](ncclComm_t comm) {
    const std::vector<float> input = input_of(context.rank, kCount);
    const std::vector<double> exact = sum_of(context.nranks, kCount);
    std::vector<float> output(kCount);
    std::vector<int32_t> numbers(kCount, 1);
    const auto error = [&] {
      WEFT_OK(
          ncclAllReduce(input.data(), output.data(), kCount, ncclFloat32, ncclSum, comm, nullptr));
      return relative_error(output.data(), exact.data(), kCount);
    };
    const auto sum_of_numbers = [&](ncclRedOp_t op, ncclDataType_t type) {
      return ncclAllReduce(numbers.data(), numbers.data(), kCount, type, op, comm, nullptr);
    };
    EXPECT_LT(error(), 1e-6);
    // Ranks that differ get the same error, and nothing changes.
    EXPECT_EQ(weftCommSetCompression(comm, context.rank == 1 ? "off" : "all_reduce=int8"),
              ncclInvalidUsage);
    EXPECT_LT(error(), 1e-6);
    for (const char* bad : {"all_reduce=int8:block=0", "all_reduce=topk:density=2:feedback",
                            "all_reduce=onebit", "all_gather=int8:feedback", "broadcast=int8",
                            "all_reduce", "all_reduce=int8,all_reduce=int4"})
      EXPECT_EQ(weftCommSetCompression(comm, bad), ncclInvalidArgument) << bad;
    WEFT_OK(weftCommSetCompression(comm, "all_reduce=int8"));
    EXPECT_GT(error(), 1e-4);
    EXPECT_EQ(sum_of_numbers(ncclSum, ncclInt32), ncclInvalidArgument);
    EXPECT_EQ(sum_of_numbers(ncclMax, ncclFloat32), ncclInvalidArgument);
    WEFT_OK(ncclAllReduce(numbers.data(), numbers.data(), 100, ncclInt32, ncclSum, comm, nullptr));
    WEFT_OK(weftCommSetCompression(comm, "off"));
    EXPECT_LT(error(), 1e-6);
    WEFT_OK(sum_of_numbers(ncclSum, ncclInt32));
    EXPECT_EQ(report_of(comm).calls, 1u);
    EXPECT_EQ(weftCommSetCompression(comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(weftCompressionReport(comm, nullptr), ncclInvalidArgument);
  });
}

TEST(Compression, CanBeSetByACall) {
  ProcessOptions options;
  options.environment = separate_hosts;
  run_ranks_as_processes("set_by_call", 2, options);
}

// The argument is whether the communicator is compressed.
WEFT_SCENARIO(named) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "dp";
  ncclComm_t comm = nullptr;
  WEFT_OK(ncclCommInitRankConfig(&comm, context.nranks, context.ids[0], context.rank, &config));
  std::vector<float> data(kCount, 1.0f);
  WEFT_OK(ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, nullptr));
  EXPECT_EQ(report_of(comm).calls, context.argument == "yes" ? 1u : 0u);
  // By environment, other types are no error.
  std::vector<int32_t> numbers(kCount, 1);
  WEFT_OK(ncclAllReduce(numbers.data(), numbers.data(), kCount, ncclInt32, ncclSum, comm, nullptr));
  EXPECT_EQ(numbers[7], context.nranks);
  WEFT_OK(ncclCommDestroy(comm));
}

TEST(Compression, IsForTheCommunicatorsThatAreNamed) {
  run_ranks_as_processes("named", 2, with_setting("tp/off;dp/all_reduce=int8;off", "yes"));
  run_ranks_as_processes("named", 2, with_setting("tp/all_reduce=int8", "no"));
}

WEFT_SCENARIO(too_much_feedback) {
  with_communicator(context, [&](ncclComm_t comm) {
    std::vector<float> data(kCount, 1.0f);
    EXPECT_EQ(ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, nullptr),
              ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("WEFT_COMPRESS_LOSSES"), std::string::npos);
    // The communicator goes on.
    WEFT_OK(
        ncclAllReduce(data.data(), data.data(), kCount / 4, ncclFloat32, ncclSum, comm, nullptr));
  });
}

TEST(Compression, FeedbackBeyondTheLimitIsRefused) {
  ProcessOptions options = with_setting("all_reduce=int4:feedback", "");
  options.environment = [](int rank) {
    auto environment = separate_hosts(rank);
    environment["WEFT_COMPRESS"] = "all_reduce=int4:feedback";
    environment["WEFT_COMPRESS_LOSSES"] = "1M";
    return environment;
  };
  run_ranks_as_processes("too_much_feedback", 2, options);
}

}  // namespace
}  // namespace weft::test
