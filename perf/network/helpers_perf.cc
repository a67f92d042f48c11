// helpers_perf measures an all_reduce of hosts with a rank each, with and without hosts that help
// (weft serve). All hosts are network namespaces on one switch of a given rate.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "nccl.h"
#include "perf/common/errors.h"
#include "perf/network/wire.h"
#include "src/tools/command_line.h"
#include "weft.h"

namespace weft::perf {
namespace {

constexpr int kSkipped = 77;

struct Settings {
  double gbit = 1, least_ratio = 0;
  int ranks = 4, helpers = 4, runs = 5, port = 29527;
  uint64_t size = 32 << 20;
  bool measure = false;
  std::string compress = "off";
};

float value_of(int rank, size_t i) {
  return static_cast<float>((static_cast<size_t>(rank) + i) % 7);
}

std::string helper_names(const Settings& settings) {
  std::string names;
  for (int k = 0; k < settings.helpers; k++)
    names += fmt::format("{}{}:{}", k == 0 ? "" : ",", wire_address(settings.ranks + k),
                         settings.port + 1);
  return names;
}

class Rank {
 public:
  Rank(const Settings& settings, int rank)
      : settings_(settings), rank_(rank), in_(settings.size / sizeof(float)), out_(in_.size()) {
    for (size_t i = 0; i < in_.size(); i++) in_[i] = value_of(rank, i);
  }

  ncclComm_t make() const {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    ncclComm_t comm = nullptr;
    check(ncclCommInitRank(&comm, settings_.ranks, id, rank_), "ncclCommInitRank");
    return comm;
  }

  // Seconds until the last rank is done.
  double call(ncclComm_t comm) {
    meet(comm);
    const auto start = std::chrono::steady_clock::now();
    check(ncclAllReduce(in_.data(), out_.data(), in_.size(), ncclFloat32, ncclSum, comm, nullptr),
          "ncclAllReduce");
    meet(comm);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  uint64_t wrong(ncclComm_t comm) const {
    uint64_t wrong = 0;
    // An encoding changes an element by a share of the largest sum.
    weftCompression_t report{};
    check(weftCompressionReport(comm, &report), "weftCompressionReport");
    const double tolerance = report.bound * report.passes * 6.0 * settings_.ranks;
    for (size_t i = 0; i < out_.size(); i++) {
      float sum = 0;
      for (int r = 0; r < settings_.ranks; r++) sum += value_of(r, i);
      wrong += std::abs(out_[i] - sum) > tolerance ? 1 : 0;
    }
    return wrong;
  }

  int play() {
    unsetenv("WEFT_HELPERS");
    ncclComm_t alone = make();
    setenv("WEFT_HELPERS", helper_names(settings_).c_str(), 1);
    if (!settings_.measure) setenv("WEFT_HELPERS_FROM", "1M", 1);
    ncclComm_t helped = make();
    // In turn, so that both see the same load of this machine.
    std::vector<double> times[2];
    uint64_t bad = 0;
    for (int run = -1; run < settings_.runs; run++)
      for (const int with : {0, 1}) {
        ncclComm_t comm = with == 1 ? helped : alone;
        const double seconds = call(comm);
        if (run >= 0) times[with].push_back(seconds);
        bad += wrong(comm);
      }
    check(ncclAllReduce(&bad, &bad, 1, ncclUint64, ncclSum, alone, nullptr), "ncclAllReduce");
    const double ratio = median(times[0]) / median(times[1]);
    if (rank_ == 0) report(times, ratio, bad, alone, helped);
    check(ncclCommDestroy(helped), "ncclCommDestroy");
    check(ncclCommDestroy(alone), "ncclCommDestroy");
    return bad == 0 && (rank_ != 0 || ratio >= settings_.least_ratio) ? kExitOk : kExitFailed;
  }

 private:
  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  static void meet(ncclComm_t comm) {
    float one = 1;
    check(ncclAllReduce(&one, &one, 1, ncclFloat32, ncclSum, comm, nullptr), "ncclAllReduce");
  }

  void report(const std::vector<double> (&times)[2], double ratio, uint64_t bad, ncclComm_t alone,
              ncclComm_t helped) const {
    const char *plan_alone = "", *plan_helped = "";
    check(weftPlanOf(alone, "all_reduce", settings_.size, &plan_alone), "weftPlanOf");
    check(weftPlanOf(helped, "all_reduce", settings_.size, &plan_helped), "weftPlanOf");
    fmt::print("{:>12} {:>12.1f} {:>12.1f} {:>8.2f} {:>8}  {} {}\n", settings_.size,
               1e3 * median(times[0]), 1e3 * median(times[1]), ratio, bad, plan_alone, plan_helped);
    std::fflush(stdout);
  }

  const Settings& settings_;
  const int rank_;
  std::vector<float> in_, out_;
};

int serve(const Settings& settings, int host) {
  const std::string weft =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().string() + "/weft";
  const std::string address = fmt::format("{}:{}", wire_address(host), settings.port + 1);
  execl(weft.c_str(), "weft", "serve", address.c_str(), "--communicators", "1",
        static_cast<char*>(nullptr));
  fmt::print(stderr, "helpers_perf: cannot start {}\n", weft);
  return kExitUsage;
}

int play(const Settings& settings, int host) {
  setenv("NCCL_COMM_ID", fmt::format("{}:{}", wire_address(0), settings.port).c_str(), 1);
  setenv("WEFT_SECRET", "of this run of helpers_perf", 0);
  setenv("NCCL_HOSTID", fmt::format("host {}", host).c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", kWire, 1);
  setenv("WEFT_HOST_MODE", "1", 1);
  setenv("WEFT_COMPRESS", settings.compress.c_str(), 1);
  if (host >= settings.ranks) return serve(settings, host);
  usleep(500'000);  // helpers serve by then
  return Rank(settings, host).play();
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  using namespace weft::perf;
  Settings settings;
  weft::CommandLine program("helpers_perf", "an all_reduce with and without hosts that help");
  program.add_option("--gbit", settings.gbit, "rate of each host").between(0.01, 100.0);
  program.add_option("--ranks", settings.ranks, "hosts with a rank").between(2, 32).with_default();
  program.add_option("--helpers", settings.helpers, "hosts that help").between(1, 8).with_default();
  program.add_option("--size", settings.size, "bytes of the array; K, M, G").in_bytes();
  program.add_option("--runs", settings.runs, "timed calls; the median counts").between(1, 1000);
  program.add_flag("--measure", settings.measure, "ranks measure at init whether helpers pay");
  program.add_option("--compress", settings.compress, "WEFT_COMPRESS, with and without helpers");
  program.add_option("--least-ratio", settings.least_ratio, "of the times, or exit with 1");
  program.calls([&] {
    fmt::print("# {} hosts with a rank, {} that help, {} Gbit/s each\n", settings.ranks,
               settings.helpers, settings.gbit);
    fmt::print("# {:>10} {:>12} {:>12} {:>8} {:>8}  plans\n", "size(B)", "alone(ms)", "helped(ms)",
               "ratio", "wrong");
    std::fflush(stdout);
    int result = kSkipped;
    try {
      result = run_on_switch(settings.ranks + settings.helpers, settings.gbit,
                             [&](int host) { return play(settings, host); });
    } catch (const std::exception& error) {
      fmt::print(stderr, "helpers_perf: {}\n", error.what());
    }
    if (result != 0) throw weft::ExitCode{result};
  });
  return program.run(argc, argv);
}
