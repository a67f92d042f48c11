// weft calibrate: measures what steps, messages, copies and reductions cost here, and keeps it for
// init. Runs the library's own collectives, by every generator, and fits the cost model's rates.
#include <fmt/format.h>
#include <sched.h>
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
  int calls, batches;  // calls timed together, and how often
};
constexpr Point kPoints[] = {{1u << 10, 10, 12}, {16u << 10, 10, 12}, {128u << 10, 5, 8},
                             {1u << 20, 2, 8},   {8u << 20, 1, 5},    {64u << 20, 1, 2}};

// CUDA's cudaStreamPerThread: kernels of different ranks must run side by side.
constexpr uintptr_t kOwnStream = 2;

// One rank's part. Every rank does exactly the same, so none waits for another in vain.
class Meter {
 public:
  Meter(Communicator& communicator, uint64_t most_bytes)
      : comm_(communicator), input_(communicator, most_bytes), output_(communicator, most_bytes) {}

  // The mean time of a call, for every batch.
  void measure(CollectiveKind kind, const Point& point, double* times) {
    Call call;
    call.kind = kind;
    call.input = input_.data();
    call.output = output_.data();
    call.stream = reinterpret_cast<cudaStream_t>(kOwnStream);
    call.count = 1;
    call.reduction.type = ncclFloat32;
    call.reduction.op = ncclSum;
    call.count = std::max<size_t>(1, point.bytes / array_bytes({kind, comm_.nranks(), 0}, call));
    // Roots take turns: calls from one root would overlap, and no hop would be seen.
    const int roots = Collective{kind, comm_.nranks(), 0}.rooted() ? comm_.nranks() : 1;
    const auto run_next = [&] {
      call.root = (call.root + 1) % roots;
      run(call);
    };
    for (int i = 0; i < roots; i++) run_next();
    for (int b = 0; b < point.batches; b++) {
      const auto begin = Clock::now();
      for (int i = 0; i < point.calls; i++) run_next();
      comm_.synchronize();
      times[b] = seconds_since(begin) * 1e6 / point.calls;
    }
  }

 private:
  // Buffers where the ranks' executor wants them.
  class Memory {
   public:
    Memory(Communicator& communicator, uint64_t bytes) : device_(communicator.on_gpu()) {
      if (device_) {
        data_ = cuda::allocate(bytes);
      } else {
        host_.assign(bytes, std::byte{1});
        data_ = host_.data();
      }
    }
    ~Memory() {
      if (device_) cuda::release(data_);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    void* data() const { return data_; }

   private:
    const bool device_;
    void* data_ = nullptr;
    std::vector<std::byte> host_;
  };

  void run(const Call& call) {
    if (comm_.on_gpu()) {
      const Call* calls[] = {&call};
      return comm_.launch(calls);
    }
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
  Memory input_, output_;
  host::Batch batch_;
};

// Times per collective, size, rank and batch; in memory that child processes share.
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

  double* of(size_t collective, size_t point, int rank) {
    return values_ +
           ((collective * std::size(kPoints) + point) * kMostRanks + static_cast<size_t>(rank)) *
               kMostBatches;
  }

  // A batch is over when the slowest rank is; the least of the batches counts, since what else runs
  // on the machine only adds to it.
  double least(size_t collective, size_t point, int ranks) {
    double best = 0;
    for (int b = 0; b < kPoints[point].batches; b++) {
      double slowest = 0;
      for (int r = 0; r < ranks; r++) slowest = std::max(slowest, of(collective, point, r)[b]);
      if (b == 0 || slowest < best) best = slowest;
    }
    return best;
  }

 private:
  static constexpr size_t kMostRanks = 8, kMostBatches = 12;
  static constexpr size_t kBytes =
      sizeof(double) * std::size(kMeasured) * std::size(kPoints) * kMostRanks * kMostBatches;
  double* values_;
};

// Where ranks have cores of their own, two of them must not end up on one because others are busy.
void stay_on_core(int rank) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all) && seen++ == rank) CPU_SET(cpu, &one);
  if (CPU_COUNT(&one) == 1) sched_setaffinity(0, sizeof one, &one);
}

class Calibrator {
  // So many ranks, and the points they measure.
  struct Team {
    int ranks;
    size_t first, end;
  };

 public:
  Calibrator(const Config& config, double budget_s, bool verbose)
      : config_(config),
        host_(read_host_report(describe_host(config), 0)),
        budget_s_(budget_s),
        verbose_(verbose) {}

  int cores() const { return host_.cores; }

  // Ranks as threads that share the current GPU.
  Fit measure_gpu() {
    const auto begin = Clock::now();
    std::vector<TimedPlan> samples;
    for (const Team& team : {Team{2, 0, 6}, {4, 0, 6}, {8, 0, 4}})
      for (const Generator* generator : {&kReach, &kExchange, &kOneShot}) {
        // What goes through FIFOs with flags is for small arrays.
        const size_t end = generator == &kReach ? team.end : std::min<size_t>(team.end, 3);
        if (seconds_since(begin) < budget_s_)
          measure_plan(*generator, {team.ranks, 0, end}, false, samples);
      }
    for (TimedPlan& sample : samples) sample.setting.cores = 1;
    return finish(samples, default_rates(kGpuRates));
  }

  // Ranks as threads or processes, in teams of several sizes, within a share of the time.
  Fit measure(bool processes, double share) {
    const auto begin = Clock::now();
    std::vector<TimedPlan> samples;
    // Small arrays for teams of every size first; large ones take most of the time.
    for (const Team& team : {Team{2, 0, 4}, {4, 0, 4}, {8, 0, 4}, {4, 4, 6}, {2, 4, 6}})
      for (const Generator& generator : generators()) {
        if (generator.reaches || generator.name == kSendRecv.name ||
            generator.channels > kUsualChannels)
          continue;
        if (seconds_since(begin) < budget_s_ * share)
          measure_plan(generator, team, processes, samples);
      }
    return finish(samples, default_rates(processes ? kProcessRates : kThreadRates));
  }

 private:
  Fit finish(const std::vector<TimedPlan>& samples, const Rates& start) const {
    const Fit fit = fit_rates(samples, start);
    for (const TimedPlan& s : samples)
      if (verbose_)
        fmt::print("{:14} {:10} {} ranks {:>9} bytes {:10.1f} us, by the rates {:10.1f} us\n",
                   name(s.collective.kind), s.plan, s.collective.nranks, s.bytes, s.us,
                   predict(s.shape, s.collective, s.bytes, s.setting, fit.rates) *
                       factor_at(fit.factors, s.collective.kind, s.plan, s.bytes));
    return fit;
  }

  void measure_plan(const Generator& generator, const Team& team, bool processes,
                    std::vector<TimedPlan>& samples) {
    const int ranks = team.ranks;
    std::string plan;
    for (const CollectiveKind kind : kMeasured)
      if (generator.supports({kind, ranks, 0}))
        plan += fmt::format("{}{}={}", plan.empty() ? "" : ",", name(kind), generator.name);
    if (plan.empty()) return;
    setenv("WEFT_PLAN", plan.c_str(), 1);
    Times times;
    const auto reports = run_team(ranks, processes, [&](int rank, const UniqueId& id) {
      if (ranks <= host_.cores) stay_on_core(rank);
      Communicator communicator(id, rank, ranks, fmt::format("rank {} of {}", rank, ranks), 0, 0,
                                false, {});
      Meter meter(communicator, kPoints[team.end - 1].bytes);
      for (size_t c = 0; c < std::size(kMeasured); c++) {
        if (!generator.supports({kMeasured[c], ranks, 0})) continue;
        for (size_t p = team.first; p < team.end; p++) {
          meter.measure(kMeasured[c], kPoints[p], times.of(c, p, rank));
        }
      }
      return RankReport{};
    });
    unsetenv("WEFT_PLAN");
    for (const RankReport& report : reports)
      if (report.error[0] != '\0')
        fail(ncclInternalError, "{} by {} ranks: {}", generator.name, ranks, report.error);
    keep(generator, team, processes, times, samples);
  }

  void keep(const Generator& generator, const Team& team, bool processes, Times& times,
            std::vector<TimedPlan>& samples) {
    const int ranks = team.ranks;
    HostSetting setting;
    setting.cores = host_.cores;
    setting.one_process = !processes;
    setting.slice_bytes = static_cast<double>(std::min<uint64_t>(
        config_.slice_bytes, Mesh::ring_bytes_for(config_, ranks, false) / 4 - kFifoAlign));
    setting.lend_bytes = static_cast<double>(config_.zero_copy_bytes);
    for (size_t c = 0; c < std::size(kMeasured); c++) {
      const Collective collective{kMeasured[c], ranks, 0};
      if (!generator.supports(collective)) continue;
      const ScheduleShape shape = shape_of(generator.make(collective, false));
      for (size_t p = team.first; p < team.end; p++)
        samples.push_back({std::string(generator.name), shape, collective,
                           static_cast<double>(kPoints[p].bytes), setting,
                           times.least(c, p, ranks)});
    }
  }

  const Config config_;
  const HostReport host_;
  const double budget_s_;
  const bool verbose_;
};

std::string today(int cores) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("measured here on {:04}-{:02}-{:02}, {} cores", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, cores);
}

void print(const char* section, const Fit& fit) {
  fmt::print("{}: median error {:.0f}%\n", section, 100 * fit.median_error);
  for (const RateName& rate : kRateNames)
    fmt::print("  {:18} {:.4g}\n", rate.name, fit.rates.*rate.rate);
}

struct Arguments {
  double seconds = 25;
  bool gpu = false, verbose = false;
};

void calibrate(const Arguments& arguments) {
  if (!arguments.gpu) setenv("WEFT_HOST_MODE", "1", 1);
  unsetenv("WEFT_TOPO");
  const Config config = Config::from_environment();
  if (rates_path(config).empty())
    fail(ncclInvalidUsage, "there is no folder for rates: set WEFT_CACHE");
  if (arguments.gpu && !cuda::available()) fail(ncclInvalidUsage, "there is no GPU to measure");
  Calibrator calibrator(config, arguments.seconds, arguments.verbose);
  // What is not measured now stays.
  Calibration calibration = load_rates(config).value_or(Calibration{});
  calibration.measured = today(calibrator.cores());
  const auto keep = [&](const char* section, const Fit& fit) {
    calibration.rates[section] = fit.rates;
    calibration.factors[section] = fit.factors;
    print(section, fit);
  };
  if (arguments.gpu) {
    keep(kGpuRates, calibrator.measure_gpu());
  } else {
    // Processes first: they must not come from a process that has threads.
    keep(kProcessRates, calibrator.measure(true, 0.35));
    keep(kThreadRates, calibrator.measure(false, 0.65));
  }
  save_rates(config, calibration);
  fmt::print("kept in {}\n", rates_path(config));
}

}  // namespace

void add_calibrate(Command& program) {
  Command command = program.add_command("calibrate", "measure this machine and keep it for init");
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("--seconds", arguments->seconds, "time to spend")
      .between(1.0, 3600.0)
      .with_default();
  command.add_flag("--gpu", arguments->gpu, "measure ranks that share this GPU instead");
  command.add_flag("--verbose", arguments->verbose, "print every measurement");
  command.calls([arguments] { calibrate(*arguments); });
}

}  // namespace weft
