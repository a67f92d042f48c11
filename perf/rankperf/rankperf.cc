// rankperf: times collectives of whatever libnccl.so.2 is loaded, with ranks as threads that share
// one GPU. fp32, out of place, both ends of every result checked.
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "perf/common/copy_rate.h"
#include "perf/common/errors.h"
#include "perf/rankperf/device.h"
#include "perf/rankperf/output.h"

namespace weft::perf::rankperf {
namespace {

constexpr const char* kUsage =
    "usage: rankperf RANKS [MOST_MIB, 256] [--json]\n"
    "  Columns: the median time of a call on a stream (wall) and inside a CUDA graph (graph); the\n"
    "  algbw of the better one; the bytes that must cross device memory at least, over that time;\n"
    "  wrong values. --json prints rows for perf/check_baselines instead.\n"
    "  The library is the one that the loader finds: LD_LIBRARY_PATH=DIR puts NCCL there.\n";

struct Options {
  int ranks = 0;
  int most_mib = 256;
  bool json = false;
};

int number(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > most)
    throw UsageError("'" + std::string(text) + "' is no number from 1 to " + std::to_string(most));
  return value;
}

// Empty: help is wanted.
std::optional<Options> parse(const std::vector<std::string>& arguments) {
  Options options;
  int numbers = 0;
  for (const std::string& argument : arguments) {
    if (argument == "-h" || argument == "--help") return std::nullopt;
    if (argument == "--json") {
      options.json = true;
    } else if (argument.starts_with("-") || numbers == 2) {
      throw UsageError("unexpected argument " + argument);
    } else if (numbers++ == 0) {
      options.ranks = number(argument, 64);
    } else {
      options.most_mib = number(argument, 4096);
    }
  }
  if (options.ranks == 0) throw UsageError("how many ranks? (-h shows the usage)");
  return options;
}

int measure(const Options& options) {
  const size_t bytes = static_cast<size_t>(options.most_mib) << 20;
  check(cudaSetDevice(0), "cudaSetDevice");
  Output output(
      options.json, options.ranks,
      "rankperf " + std::to_string(options.ranks) + " " + std::to_string(options.most_mib));
  size_t wrong = 0;
  Team team(options.ranks, bytes);
  team.initialized = [&](double seconds) { output.initialized(seconds); };
  team.measured = [&](const Collective& collective, size_t size, const Times& times) {
    output.measured(collective, size, times);
    wrong += times.wrong;
  };
  check(ncclGetUniqueId(&team.id), "ncclGetUniqueId");
  output.begin(copy_gbps(bytes));
  team.began = Clock::now();
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < options.ranks; ++rank)
    ranks.emplace_back([&team, rank] {
      try {
        run_rank(team, rank);
      } catch (const std::exception& error) {
        // The other ranks wait for this one, on the GPU too: nothing can be tidied up.
        std::fprintf(stderr, "rankperf: rank %d: %s\n", rank, error.what());
        std::_Exit(kExitLibrary);
      }
    });
  ranks.clear();
  if (wrong != 0) std::fprintf(stderr, "rankperf: %zu wrong values\n", wrong);
  return wrong == 0 ? kExitOk : kExitFailed;
}

int run(const std::vector<std::string>& arguments) {
  try {
    if (const auto options = parse(arguments)) return measure(*options);
    std::printf("%s", kUsage);
    return kExitOk;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "rankperf: %s\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rankperf: %s\n", error.what());
    return kExitLibrary;
  }
}

}  // namespace
}  // namespace weft::perf::rankperf

int main(int argc, char** argv) { return weft::perf::rankperf::run({argv + 1, argv + argc}); }
