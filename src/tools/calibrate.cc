// weft calibrate: measures what steps, messages, copies and reductions cost here, and keeps it for
// init. Runs the library's own collectives, by every generator, and fits the cost model's rates.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "src/base/error.h"
#include "src/comm/cluster.h"
#include "src/comm/communicator.h"
#include "src/planner/fit_rates.h"
#include "src/planner/rates_file.h"
#include "src/tools/commands.h"
#include "src/tools/rank_team.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr CollectiveKind kMeasured[] = {CollectiveKind::kAllReduce,     CollectiveKind::kAllGather,
                                        CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                        CollectiveKind::kReduce,        CollectiveKind::kAllToAll};
struct Point {
  uint64_t bytes;
  int calls;  // timed together
};
constexpr Point kPoints[] = {{1u << 10, 40}, {16u << 10, 40}, {128u << 10, 20},
                             {1u << 20, 8},  {8u << 20, 2},   {64u << 20, 1}};
constexpr int kBatches = 3;

// One rank's part. Every rank does exactly the same, so none waits for another in vain.
class Meter {
 public:
  Meter(Communicator& communicator, uint64_t most_bytes)
      : comm_(communicator), input_(most_bytes, std::byte{1}), output_(most_bytes) {}

  // The middle one of the batches' mean times.
  double measure(CollectiveKind kind, const Point& point) {
    Call call;
    call.kind = kind;
    call.input = input_.data();
    call.output = output_.data();
    call.count = 1;
    call.reduction.type = ncclFloat32;
    call.reduction.op = ncclSum;
    call.count = std::max<size_t>(1, point.bytes / array_bytes({kind, comm_.nranks(), 0}, call));
    run(call);
    std::vector<double> times;
    for (int b = 0; b < kBatches; b++) {
      const auto begin = Clock::now();
      for (int i = 0; i < point.calls; i++) run(call);
      times.push_back(seconds_since(begin) * 1e6 / point.calls);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  void run(const Call& call) {
    comm_.begin();
    batch_.clear();
    comm_.add_to(batch_, call);
    if (batch_.empty()) return;
    const host::Outcome outcome = batch_.run(0);
    if (outcome.code == ncclSuccess) return;
    const std::string text = outcome.text.empty() ? comm_.fault() : outcome.text;
    comm_.stop(outcome.code, text, true);
    throw Error(outcome.code, text);
  }

  Communicator& comm_;
  std::vector<std::byte> input_, output_;
  host::Batch batch_;
};

// Times per collective and size, of the slowest rank; in memory that child processes share.
class Times {
 public:
  Times()
      : values_(static_cast<double*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (values_ == MAP_FAILED) fail_errno(errno, "cannot share {} bytes", kBytes);
  }
  ~Times() { munmap(values_, kBytes); }
  Times(const Times&) = delete;
  Times& operator=(const Times&) = delete;

  double& at(size_t collective, size_t point) {
    return values_[collective * std::size(kPoints) + point];
  }

 private:
  static constexpr size_t kBytes = sizeof(double) * std::size(kMeasured) * std::size(kPoints);
  double* values_;
};

class Calibrator {
 public:
  Calibrator(const Config& config, double budget_s)
      : config_(config), host_(read_host_report(describe_host(config), 0)), budget_s_(budget_s) {}

  int cores() const { return host_.cores; }

  // Ranks as threads or processes, in teams of several sizes, within a share of the time.
  Fit measure(bool processes, double share) {
    const auto begin = Clock::now();
    std::vector<TimedPlan> samples;
    for (const int ranks : {2, 4, 8})
      for (const Generator& generator : generators()) {
        if (generator.name == kReach.name || generator.name == kStage.name ||
            generator.name == kSendRecv.name)
          continue;
        const double left = budget_s_ * share - seconds_since(begin);
        if (left <= 0) break;
        // Large arrays take most of the time, and large teams need them least.
        const uint64_t most =
            ranks == 8 || processes || left < 0.3 * budget_s_ * share ? (1u << 20) : (64u << 20);
        measure_plan(generator, ranks, processes, most, samples);
      }
    return fit_rates(samples, default_rates(processes ? kProcessRates : kThreadRates));
  }

 private:
  void measure_plan(const Generator& generator, int ranks, bool processes, uint64_t most,
                    std::vector<TimedPlan>& samples) {
    std::string plan;
    for (const CollectiveKind kind : kMeasured)
      if (generator.supports({kind, ranks, 0}))
        plan += fmt::format("{}{}={}", plan.empty() ? "" : ",", name(kind), generator.name);
    if (plan.empty()) return;
    setenv("WEFT_PLAN", plan.c_str(), 1);
    Times times;
    const auto reports = run_team(ranks, processes, [&](int rank, const UniqueId& id) {
      Communicator communicator(id, rank, ranks, fmt::format("rank {} of {}", rank, ranks), 0, 0,
                                false, {});
      Meter meter(communicator, most);
      for (size_t c = 0; c < std::size(kMeasured); c++) {
        if (!generator.supports({kMeasured[c], ranks, 0})) continue;
        for (size_t p = 0; p < std::size(kPoints) && kPoints[p].bytes <= most; p++) {
          const double us = meter.measure(kMeasured[c], kPoints[p]);
          if (rank == 0) times.at(c, p) = us;
        }
      }
      return RankReport{};
    });
    unsetenv("WEFT_PLAN");
    for (const RankReport& report : reports)
      if (report.error[0] != '\0')
        fail(ncclInternalError, "{} by {} ranks: {}", generator.name, ranks, report.error);
    keep(generator, ranks, processes, most, times, samples);
  }

  void keep(const Generator& generator, int ranks, bool processes, uint64_t most, Times& times,
            std::vector<TimedPlan>& samples) {
    HostSetting setting;
    setting.cores = host_.cores;
    setting.one_process = !processes;
    if (host_.cache_bytes > 0) setting.cache_bytes = host_.cache_bytes;
    setting.slice_bytes = static_cast<double>(std::min<uint64_t>(
        config_.slice_bytes, Mesh::ring_bytes_for(config_, ranks, false) / 4 - kFifoAlign));
    setting.lend_bytes = static_cast<double>(config_.zero_copy_bytes);
    for (size_t c = 0; c < std::size(kMeasured); c++) {
      const Collective collective{kMeasured[c], ranks, 0};
      if (!generator.supports(collective)) continue;
      const ScheduleShape shape = shape_of(generator.make(collective, false));
      for (size_t p = 0; p < std::size(kPoints) && kPoints[p].bytes <= most; p++)
        samples.push_back(
            {shape, collective, static_cast<double>(kPoints[p].bytes), setting, times.at(c, p)});
    }
  }

  const Config config_;
  const HostReport host_;
  const double budget_s_;
};

std::string today(int cores) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("measured here on {:04}-{:02}-{:02}, {} cores", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, cores);
}

void calibrate(double seconds) {
  setenv("WEFT_HOST_MODE", "1", 1);
  unsetenv("WEFT_TOPO");
  const Config config = Config::from_environment();
  if (rates_path(config).empty())
    fail(ncclInvalidUsage, "there is no folder for rates: set WEFT_CACHE");
  Calibrator calibrator(config, seconds);
  Calibration calibration;
  calibration.measured = today(calibrator.cores());
  // Processes first: they must not come from a process that has threads.
  for (const bool processes : {true, false}) {
    const char* section = processes ? kProcessRates : kThreadRates;
    const Fit fit = calibrator.measure(processes, processes ? 0.35 : 0.65);
    calibration.rates[section] = fit.rates;
    fmt::print("{}: median error {:.0f}%\n", section, 100 * fit.median_error);
    for (const RateName& rate : kRateNames)
      fmt::print("  {:18} {:.4g}\n", rate.name, fit.rates.*rate.rate);
  }
  save_rates(config, calibration);
  fmt::print("kept in {}\n", rates_path(config));
}

}  // namespace

void add_calibrate(CLI::App& app) {
  auto* command = app.add_subcommand("calibrate", "measure this machine and keep it for init");
  const auto seconds = std::make_shared<double>(25);
  command->add_option("--seconds", *seconds, "time to spend")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
  command->callback([seconds] { calibrate(*seconds); });
}

}  // namespace weft
