// See output.h.
#include "perf/rankperf/output.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "perf/common/provenance.h"
#include "perf/rankperf/device.h"

namespace weft::perf::rankperf {
namespace {

// From here on the bandwidth of device memory is the limit.
constexpr size_t kLargeBytes = 64 << 20;

int version() {
  int number = 0;
  check(ncclGetVersion(&number), "ncclGetVersion");
  return number;
}

// 23007: 2.30.7
std::string version_text() {
  const int number = version();
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

}  // namespace

Output::Output(bool json, int ranks, std::string command)
    : json_(json),
      ranks_(ranks),
      command_(std::move(command)),
      is_weft_(dlsym(RTLD_DEFAULT, "weftHostMode") != nullptr),
      library_((is_weft_ ? "Weft, as NCCL " : "NCCL ") + version_text()),
      date_(today()),
      machine_(perf::gpu()),
      driver_(perf::driver()) {}

void Output::begin(double gbps) {
  copy_gbps_ = gbps;
  if (json_) return row("copy_gbps", gbps, "GB/s", "higher");
  std::printf("# library version %d, %d ranks on one GPU\n", version(), ranks_);
  std::printf("# library %s\n", library_.c_str());
  std::printf("# D2D copy %.1f GB/s (read+write)\n", gbps);
  std::printf("%-15s %12s %12s %12s %10s %12s %7s\n", "collective", "size(B)", "wall(us)",
              "graph(us)", "algbw", "minHBM GB/s", "wrong");
  std::fflush(stdout);
}

void Output::initialized(double seconds) {
  if (json_) return row("init_s", seconds, "s", "lower");
  std::printf("# init %.3f s\n", seconds);
}

void Output::measured(const Collective& collective, size_t bytes, const Times& times) {
  const double us = std::min(times.wall_us, times.graph_us);
  const double algbw = static_cast<double>(bytes) / us / 1e3;
  const double least_gbps = collective.arrays_moved(ranks_) * algbw;
  if (json_) {
    const std::string cell = std::string(collective.name) + "/" + short_size(bytes);
    row(cell + "/wall_us", times.wall_us, "us", "lower");
    row(cell + "/graph_us", times.graph_us, "us", "lower");
    if (bytes >= kLargeBytes)
      row(cell + "/limit_fraction", least_gbps / copy_gbps_, "of the memory limit", "higher");
    return;
  }
  std::printf("%-15s %12zu %12.1f %12.1f %10.2f %12.1f %7zu\n", collective.name, bytes,
              times.wall_us, times.graph_us, algbw, least_gbps, times.wrong);
  std::fflush(stdout);
}

// Nothing in these texts needs an escape.
void Output::row(const std::string& what, double value, const char* unit,
                 const char* better) const {
  std::printf("{\"id\": \"rankperf/%s/%d/%s\", \"value\": %.3f, \"unit\": \"%s\", ",
              is_weft_ ? "weft" : "nccl", ranks_, what.c_str(), value, unit);
  std::printf("\"better\": \"%s\", \"command\": \"%s\", \"date\": \"%s\", ", better,
              command_.c_str(), date_.c_str());
  std::printf("\"machine\": \"%s\", \"library\": \"%s\"", machine_.c_str(), library_.c_str());
  if (!driver_.empty()) std::printf(", \"driver\": \"%s\"", driver_.c_str());
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace weft::perf::rankperf
