// priority_perf: the time of small calls of one communicator beside large calls of another, alone,
// beside the same class, and beside a lower class. Host mode; ranks are threads.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "include/weft.h"
#include "perf/common/errors.h"

namespace weft::perf {
namespace {

constexpr size_t kSmall = 16 << 10, kLarge = size_t{16} << 20;  // floats
constexpr int kCalls = 2000;

struct Figures {
  double small_us, mean_us;  // the median, the mean
  double large_per_s;
};

void add(ncclComm_t comm, std::vector<float>& data) {
  check(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclMax, comm, nullptr),
        "ncclAllReduce");
}

Figures measure(int ranks, bool beside, int priority) {
  const auto n = static_cast<size_t>(ranks);
  std::vector<ncclComm_t> small(n), large(n);
  check(ncclCommInitAll(small.data(), ranks, nullptr), "ncclCommInitAll");
  check(ncclCommInitAll(large.data(), ranks, nullptr), "ncclCommInitAll");
  for (size_t r = 0; r < n; r++) {
    check(weftCommSetPriority(small[r], priority), "weftCommSetPriority");
    check(weftCommSetPriority(large[r], -priority), "weftCommSetPriority");
  }
  std::atomic<int> over{0};
  std::vector<double> times;
  std::atomic<int> larges{0};
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (size_t r = 0; r < n; r++) {
    threads.emplace_back([&, r] {
      std::vector<float> data(kSmall, 1);
      for (int k = 0; k < kCalls; k++) {
        const auto begin = std::chrono::steady_clock::now();
        add(small[r], data);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (r == 0) times.push_back(1e6 * took.count());
      }
      over++;
    });
    if (!beside) continue;
    threads.emplace_back([&, r] {
      std::vector<float> data(kLarge, 1), stop(1);
      do {
        add(large[r], data);
        stop[0] = over == ranks ? 1 : 0;
        add(large[r], stop);  // all ranks stop after the same call
        if (r == 0) larges++;
      } while (stop[0] == 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  for (size_t r = 0; r < n; r++) {
    ncclCommDestroy(small[r]);
    ncclCommDestroy(large[r]);
  }
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double us : times) sum += us;
  return {times[times.size() / 2], sum / static_cast<double>(times.size()), larges / took.count()};
}

int run(int ranks) {
  const Figures alone = measure(ranks, false, 0), equal = measure(ranks, true, 0),
                above = measure(ranks, true, 1);
  fmt::print("# {} ranks, all_reduce of {} KiB beside all_reduce of {} MiB\n", ranks,
             kSmall * 4 >> 10, kLarge * 4 >> 20);
  fmt::print("{:<16} {:>10} {:>8} {:>10} {:>12}\n", "large calls", "median us", "ratio", "mean us",
             "large per s");
  const auto row = [&](const char* name, const Figures& figures) {
    fmt::print("{:<16} {:>10.1f} {:>8.2f} {:>10.1f} {:>12.2f}\n", name, figures.small_us,
               figures.small_us / alone.small_us, figures.mean_us, figures.large_per_s);
  };
  row("none", alone);
  row("same class", equal);
  row("lower class", above);
  return 0;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  setenv("WEFT_HOST_MODE", "1", 1);
  return weft::perf::run(argc > 1 ? std::max(2, std::atoi(argv[1])) : 2);
}
