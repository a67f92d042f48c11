// Results have the same bits on all ranks, from run to run, and in host mode.
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/pinned.h"
#include "tests/support/case_data.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"
#include "tests/support/threads.h"
#include "weft.h"

namespace weft::test {
namespace {

// Values whose sums round differently in every order. No value is zero: the sign of a zero result
// would be undetermined. The values repeat with a prime period.
std::vector<char> random_floats(const NumberType& type, size_t count, uint64_t seed) {
  constexpr size_t kValues = 2039;
  std::vector<char> bytes(count * type.bytes);
  const size_t fresh = std::min(count, kValues);
  for (size_t i = 0; i < fresh; ++i) {
    const uint64_t bits = mix(seed, i);
    const double size = 0.25 + 1.75 * static_cast<double>(bits >> 11) * 0x1p-53;
    store(type, encode(type, bits % 2 == 0 ? size : -size), bytes.data() + i * type.bytes);
  }
  for (size_t i = kValues * type.bytes; i < bytes.size(); i += kValues * type.bytes)
    std::memcpy(bytes.data() + i, bytes.data(), std::min(kValues * type.bytes, bytes.size() - i));
  return bytes;
}

uint64_t hash_of(const std::vector<char>& bytes) {
  uint64_t hash = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    hash = mix(hash, word);
  }
  return hash;
}

// Buffers of one rank: in device memory, or in host memory in host mode.
class RankMemory {
 public:
  static constexpr size_t kBytes = size_t{16} << 20;
  RankMemory() {
    if (weftHostMode() != 0) {
      host_.resize(2 * kBytes);
      base_ = host_.data();
    } else {
      void* memory = nullptr;
      WEFT_CUDA(cudaMalloc(&memory, 2 * kBytes));
      base_ = static_cast<char*>(memory);
      WEFT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    }
  }
  char* in() const { return base_; }
  char* out() const { return base_ + kBytes; }
  cudaStream_t stream() const { return stream_; }
  void write(const std::vector<char>& from) {
    if (weftHostMode() != 0) {
      std::memcpy(in(), from.data(), from.size());
    } else {
      upload(in(), from.data(), from.size(), stream_);
    }
  }
  std::vector<char> read(size_t bytes) const {
    if (weftHostMode() != 0) return {out(), out() + bytes};
    std::vector<char> to(bytes);
    download(to.data(), out(), bytes, stream_);
    return to;
  }

 private:
  std::vector<char> host_;
  char* base_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// Prints "result NAME RANK HASH" for every reduction of every float type. The argument is the
// number of ranks.
WEFT_SCENARIO(print_results) {
  const int n = std::stoi(context.argument);
  std::vector<RankMemory> places(static_cast<size_t>(n));
  run_ranks_as_threads(
      n,
      [&](int rank, ncclComm_t comm) {
        RankMemory& mine = places[static_cast<size_t>(rank)];
        for (const NumberType& type : all_types()) {
          if (!type.is_float) continue;
          for (const Reduction reduction :
               {Reduction::kSum, Reduction::kProd, Reduction::kMax, Reduction::kAvg}) {
            for (const Operation operation :
                 {Operation::kAllReduce, Operation::kReduceScatter, Operation::kReduce}) {
              for (const size_t count : {size_t{100}, size_t{4099}, size_t{60000}}) {
                Case c;
                c.operation = operation;
                c.type = type.id;
                c.reduction = reduction;
                c.count = count;
                mine.write(random_floats(type, input_count(c, rank, n),
                                         mix(count, static_cast<uint64_t>(rank))));
                WEFT_OK(issue(
                    c, {rank, n, comm, mine.in(), mine.out(), built_in(reduction), mine.stream()}));
                const size_t results = result_count(c, rank, n);
                std::printf("result %s:%s:%s:%zu %d %016" PRIx64 "\n", name_of(operation),
                            type.name, name_of(reduction), count, rank,
                            hash_of(mine.read(results * type.bytes)));
              }
            }
          }
        }
      },
      std::chrono::seconds(30));
}

// NAME RANK -> HASH
std::map<std::string, std::string> results_of(int n,
                                              const std::map<std::string, std::string>& env) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(30);
  options.argument = std::to_string(n);
  options.environment = [&](int) { return env; };
  const std::vector<ProcessResult> ended = run_processes("print_results", 1, options);
  EXPECT_TRUE(ended[0].exit_code == 0 && !ended[0].hung) << ended[0].output;
  std::map<std::string, std::string> results;
  std::istringstream lines(ended[0].output);
  for (std::string word, name, rank, hash; lines >> word;)
    if (word == "result" && lines >> name >> rank >> hash) results[name + " rank " + rank] = hash;
  EXPECT_FALSE(results.empty());
  return results;
}

void expect_same(const std::map<std::string, std::string>& a,
                 const std::map<std::string, std::string>& b, const char* what) {
  EXPECT_EQ(a.size(), b.size());
  std::string different;
  int count = 0;
  for (const auto& [name, hash] : a)
    if (const auto it = b.find(name); it == b.end() || it->second != hash)
      if (++count <= 10) different += "\n  " + name;
  EXPECT_EQ(count, 0) << what << ", first of them:" << different;
}

class Numerics : public testing::TestWithParam<int> {};

TEST_P(Numerics, AreTheSameOnAllRanksInEveryRunAndInHostMode) {
  const int n = GetParam();
  const auto first = results_of(n, {});
  for (const auto& [name, hash] : first) {
    if (name.rfind("AllReduce", 0) != 0) continue;
    const std::string zero = name.substr(0, name.rfind(' ')) + " 0";
    EXPECT_EQ(hash, first.at(zero)) << name;
  }
  expect_same(first, results_of(n, {}), "results that differ from run to run");
  for (const char* all_reduce : {"one_shot", "direct"}) {
    const std::string plan =
        std::string("all_reduce=") + all_reduce + ",reduce_scatter=direct,reduce=direct";
    expect_same(first, results_of(n, {{"WEFT_HOST_MODE", "1"}, {"WEFT_PLAN", plan}}),
                "results that differ from host mode's");
  }
}

// Sums and averages of 16-bit floats.
std::map<std::string, std::string> short_sums_of(int n, std::map<std::string, std::string> env) {
  env["WEFT_PLAN"] = "all_reduce=ring,reduce_scatter=ring,reduce=ring";
  auto results = results_of(n, env);
  std::erase_if(results, [](const auto& result) {
    return result.first.find("float16") == std::string::npos ||
           (result.first.find(":sum:") == std::string::npos &&
            result.first.find(":avg:") == std::string::npos);
  });
  EXPECT_FALSE(results.empty());
  return results;
}

TEST_P(Numerics, OfRingsInFloatAreThoseOfHostMode) {
  const int n = GetParam();
  const auto wide = short_sums_of(n, {{"WEFT_ACCUMULATE", "float"}});
  expect_same(wide, short_sums_of(n, {{"WEFT_HOST_MODE", "1"}, {"WEFT_ACCUMULATE", "float"}}),
              "results that differ from host mode's");
  if (n > 2) {
    EXPECT_NE(wide, short_sums_of(n, {})) << "these values do not show it";
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Numerics, testing::Values(2, 3, 8),
                         [](const auto& tested) { return std::to_string(tested.param) + "ranks"; });

}  // namespace
}  // namespace weft::test
