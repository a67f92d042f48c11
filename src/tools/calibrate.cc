// weft calibrate: measures the cost of steps, messages, copies and reductions on this machine,
// between threads, processes and over the network. Stores the rates for init. Runs the library's
// own collectives with every generator and fits the cost model's rates. Factors per plan cover the
// rest.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <span>

#include "src/base/error.h"
#include "src/base/parallel_for.h"
#include "src/comm/cluster.h"
#include "src/comm/mesh.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/host/codec_speed.h"
#include "src/planner/fit_rates.h"
#include "src/planner/gpu_rates.h"
#include "src/planner/rates_file.h"
#include "src/tools/commands.h"
#include "src/tools/gpu_player.h"
#include "src/tools/own_gpu_meter.h"
#include "src/tools/plan_meter.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr CollectiveKind kMeasured[] = {CollectiveKind::kAllReduce,     CollectiveKind::kAllGather,
                                        CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                        CollectiveKind::kReduce,        CollectiveKind::kAllToAll};
// Sizes measured in several rounds, seconds apart; the median counts. A short disturbance hits only
// one round. It makes times longer, or shorter if calls then overlap.
constexpr MeterPoint kSmall[] = {{1u << 10, 3},  {4u << 10, 3},   {16u << 10, 3},
                                 {64u << 10, 3}, {256u << 10, 3}, {1u << 20, 3}};
constexpr int kRounds = 3;
constexpr double kQuiet = 1.3;  // on a quiet machine repeated times differ by less
constexpr MeterPoint kLarge[] = {{4u << 20, 7}, {16u << 20, 5}, {64u << 20, 5}, {256u << 20, 3}};
constexpr MeterPoint kNetwork[] = {{1u << 10, 3}, {16u << 10, 3}, {256u << 10, 3}, {4u << 20, 3}};

class Calibrator {
 public:
  Calibrator(const Config& config, double budget_s, bool verbose)
      : config_(config), budget_s_(budget_s), verbose_(verbose) {
    for (const Generator& generator : generators())
      if (!generator.peer_memory && generator.name != kSendRecv.name &&
          generator.channels <= kUsualChannels && !generator.between_hosts)
        plans_.push_back(&generator);
  }

  // Ranks are threads or processes that share a GPU.
  Fit measure_gpu(bool processes) {
    begin(1.0);
    HostSetting setting;
    setting.on_gpus = true;
    setting.one_process = !processes;
    // Plans that use FIFOs with flags are for small arrays.
    const Generator* any[] = {&kPeerMemory, &kOneRound, &kOneShot};
    const Generator* in_place[] = {&kPeerMemory};
    const auto time = [&](int ranks, std::span<const Generator* const> plans,
                          std::span<const MeterPoint> points) {
      measure({ranks, processes, false, false, kMeasured, plans, points, left(), true}, setting);
    };
    const auto time_large = [&] {
      for (const int ranks : {2, 4, 8}) time(ranks, in_place, large_for(ranks));
    };
    // Processes take a second to start. So large sizes are first, and 1 MiB goes with smaller ones:
    // packets are still the fastest in some alltoall.
    if (processes) time_large();
    for (int round = 0; round < kRounds; round++)
      for (const int ranks : {2, 4, 8}) {
        time(ranks, any, {kSmall, processes ? size_t{6} : size_t{5}});
        if (!processes) time(ranks, in_place, {kSmall + 5, 1});
      }
    if (!processes) time_large();
    warn_if_busy();
    return finish(default_rates(processes ? kGpuProcessRates : kGpuRates));
  }

  // Ranks are threads or processes of this host, in teams of several sizes.
  Fit measure_host(bool processes, double share) {
    begin(share);
    // Small arrays of all team sizes first; large arrays take most of the time.
    for (int round = 0; round < kRounds; round++)
      for (const int ranks : {2, 4, 8})
        measure({ranks, processes, false, true, kMeasured, plans_, kSmall, left()},
                setting_for(ranks, processes, false));
    int teams = 3;
    for (const int ranks : {4, 2, 8})
      measure(
          {ranks, processes, false, true, kMeasured, plans_, large_for(ranks), left() / teams--},
          setting_for(ranks, processes, false));
    warn_if_busy();
    return finish(default_rates(processes ? kProcessRates : kThreadRates));
  }

  // Processes talk through the network plugin, over this host's loopback. The core time of messages
  // is the same as between hosts. Their latency is a lower bound.
  Fit measure_network(double share) {
    begin(share);
    for (const int ranks : {2, 4})
      measure({ranks, true, true, true, kMeasured, plans_, kNetwork, left()},
              setting_for(ranks, true, true));
    return finish(default_rates(kNetworkRates));
  }

 private:
  // The largest size needs 2 GiB for four ranks. With more ranks it would take longer to allocate
  // than to measure.
  static std::span<const MeterPoint> large_for(int ranks) {
    const std::span<const MeterPoint> all(kLarge);
    double memory =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    // A container may have less.
    for (const char* path :
         {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
      if (double limit = 0; std::ifstream(path) >> limit) memory = std::min(memory, limit);
    const double needed = 2.0 * ranks * static_cast<double>(all.back().bytes);
    return ranks <= 4 && 4 * needed <= memory ? all : all.first(all.size() - 1);
  }

  void begin(double share) {
    begin_ = Clock::now();
    share_s_ = share * budget_s_;
    samples_.clear();
    rounds_.clear();
  }
  double left() const {
    return share_s_ - std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  HostSetting setting_for(int ranks, bool processes, bool own_hosts) const {
    HostSetting setting;
    setting.cores = usable_cores();
    setting.one_process = !processes;
    setting.pretended_hosts = own_hosts;
    for (int r = 0; own_hosts && r < ranks; r++) setting.hosts.push_back(r);
    setting.slice_bytes = static_cast<double>(
        std::min<uint64_t>(own_hosts ? config_.net_slice_bytes : config_.slice_bytes,
                           Mesh::ring_bytes_for(config_, ranks, own_hosts) / 4 - kFifoAlign));
    setting.lend_bytes = static_cast<double>(config_.zero_copy_bytes);
    return setting;
  }

  void measure(const MeterOrder& order, const HostSetting& setting) {
    if (order.seconds <= 0) return;
    for (const PlanTime& time : time_plans(order)) {
      const Collective collective{time.kind, order.ranks, 0};
      const auto before = std::find_if(samples_.begin(), samples_.end(), [&](const TimedPlan& s) {
        return s.plan == time.plan->name && s.collective == collective &&
               s.bytes == static_cast<double>(time.bytes);
      });
      if (before != samples_.end()) {
        std::vector<double>& rounds = rounds_[static_cast<size_t>(before - samples_.begin())];
        rounds.insert(std::upper_bound(rounds.begin(), rounds.end(), time.us), time.us);
        before->us = rounds[(rounds.size() - 1) / 2];
        continue;
      }
      samples_.push_back({std::string(time.plan->name),
                          shape_of(time.plan->make(collective, false), setting.hosts), collective,
                          static_cast<double>(time.bytes), setting, time.us});
      rounds_.push_back({time.us});
    }
  }

  // On a busy machine ranks wait for a core, not for each other.
  void warn_if_busy() {
    size_t small = 0;
    std::vector<double> apart;  // ratio of the two shortest times, of samples with two
    for (size_t i = 0; i < samples_.size(); i++) {
      if (samples_[i].bytes > static_cast<double>(std::end(kSmall)[-1].bytes)) continue;
      small++;
      if (rounds_[i].size() >= 2) apart.push_back(rounds_[i][1] / rounds_[i][0]);
    }
    std::sort(apart.begin(), apart.end());
    const double median = apart.empty() ? 1 : apart[apart.size() / 2];
    if (small == apart.size() && median < kQuiet) return;
    fmt::print(
        stderr,
        "weft calibrate: {} of {} small measurements were made more than once, {:.0f}% apart "
        "(median): the machine is busy, or the time too short; measure again when it is quiet\n",
        apart.size(), small, 100 * (median - 1));
  }

  Fit finish(const Rates& start) const {
    Fit fit = fit_rates(samples_, start);
    for (const TimedPlan& s : samples_)
      if (verbose_)
        fmt::print("{:14} {:10} {} ranks {:>9} bytes {:10.1f} us, by the rates {:10.1f} us\n",
                   name(s.collective.kind), s.plan, s.collective.nranks, s.bytes, s.us,
                   predict(s.shape, s.collective, s.bytes, s.setting, fit.rates));
    return fit;
  }

  const Config config_;
  const double budget_s_;
  const bool verbose_;
  std::vector<const Generator*> plans_;
  Clock::time_point begin_;
  double share_s_ = 0;
  std::vector<TimedPlan> samples_;
  std::vector<std::vector<double>> rounds_;  // times of every sample, shortest first
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("measured here on {:04}-{:02}-{:02}, {} cores", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, usable_cores());
}

void print(const char* section, const Fit& fit) {
  fmt::print("{}: the rates alone are wrong by {:.0f}% (median)\n", section,
             100 * fit.median_error);
  for (const RateName& rate : kRateNames)
    fmt::print("  {:18} {:.4g}\n", rate.name, fit.rates.*rate.rate);
}

void measure_codecs(Calibration& calibration) {
  for (const char* text : {"int8", "int4", "fp8", "onebit", "topk", "widen"}) {
    const CodecSpec spec = parse_codec_spec(text);
    const host::CodecSpeed speed = host::measure_codec(spec);
    calibration.codecs[spec.kind] = {speed.encode_us_mb, speed.decode_us_mb};
    fmt::print("codec {:7} {:.4g} us to encode a megabyte, {:.4g} to decode it\n", text,
               speed.encode_us_mb, speed.decode_us_mb);
  }
}

// Ranks with a GPU each.
Rates measure_own_gpus(const Config& config, const std::vector<int>& devices) {
  if (devices.size() < 2) fail(ncclInvalidUsage, "two GPUs are needed, or one named twice");
  for (const int device : devices)
    if (device < 0 || device >= cuda::device_count())
      fail(ncclInvalidUsage, "there is no GPU {}", device);
  const Machine machine = read_host_report(describe_host(config), 0).machine;
  const std::vector<OwnGpuTimes> teams = time_own_gpus(devices, machine);
  for (const OwnGpuTimes& team : teams)
    fmt::print("{} GPUs: a ring takes {:.2f} us, a round of packets {:.2f} us\n", team.ranks,
               team.ring_us, team.packets_us);
  Rates start;
  const GpuRates row = gpu_rates(machine, nullptr);
  start.call_us = row.call_us;
  start.step_us = row.step_us;
  start.message_us = row.message_us;
  start.lane_start_us = row.lane_start_us;
  const Rates rates = fit_own_gpus(teams, start);
  fmt::print(
      "{}: call_us {:.3g}, step_us {:.3g}, message_us {:.3g}, hop_us {:.3g}, lane_start_us "
      "{:.3g}\n",
      kOwnGpuRates, rates.call_us, rates.step_us, rates.message_us, rates.hop_us,
      rates.lane_start_us);
  return rates;
}

// "0,1,2"; empty: all GPUs.
std::vector<int> parse_devices(const std::string& text) {
  std::vector<int> devices;
  for (int d = 0; text.empty() && d < cuda::device_count(); d++) devices.push_back(d);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int device = 0;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, device);
    if (error != std::errc() || rest != text.data() + end)
      fail(ncclInvalidUsage, "--devices wants numbers with commas between, not '{}'", text);
    devices.push_back(device);
    at = end + 1;
  }
  return devices;
}

struct CalibrateArguments {
  double seconds = 28;
  bool gpu = false, processes = false, verbose = false;
  std::string devices;
};

void calibrate(const CalibrateArguments& arguments) {
  if (!arguments.gpu && !arguments.devices.empty())
    fail(ncclInvalidUsage, "--devices is for --gpu");
  if (arguments.processes && (!arguments.gpu || !arguments.devices.empty()))
    fail(ncclInvalidUsage, "--processes is for --gpu, without --devices");
  if (!arguments.gpu) setenv("WEFT_HOST_MODE", "1", 1);
  // Processes under MPS fail with as many queues.
  if (arguments.gpu && !arguments.processes) ask_for_hardware_queues();
  unsetenv("WEFT_TOPO");
  const Config config = Config::from_environment();
  if (rates_path(config).empty())
    fail(ncclInvalidUsage, "there is no folder for rates: set WEFT_CACHE");
  // Not before processes are started: they could not use CUDA.
  if (arguments.gpu && !arguments.processes && !cuda::available())
    fail(ncclInvalidUsage, "there is no GPU to measure");
  Calibrator calibrator(config, arguments.seconds, arguments.verbose);
  // Sections that are not measured now stay.
  Calibration calibration = load_rates(config).value_or(Calibration{});
  calibration.measured = today();
  const auto keep = [&](const char* section, const Fit& fit) {
    calibration.rates[section] = fit.rates;
    calibration.factors[section] = fit.factors;
    print(section, fit);
  };
  if (arguments.processes) {
    keep(kGpuProcessRates, calibrator.measure_gpu(true));
  } else if (arguments.gpu && (!arguments.devices.empty() || cuda::device_count() > 1)) {
    calibration.rates[kOwnGpuRates] = measure_own_gpus(config, parse_devices(arguments.devices));
  } else if (arguments.gpu) {
    keep(kGpuRates, calibrator.measure_gpu(false));
  } else {
    // Processes first: they must not be forked from a process that has threads.
    keep(kNetworkRates, calibrator.measure_network(0.1));
    keep(kProcessRates, calibrator.measure_host(true, 0.39));
    keep(kThreadRates, calibrator.measure_host(false, 0.51));
    measure_codecs(calibration);
  }
  save_rates(config, calibration);
  fmt::print("kept in {}\n", rates_path(config));
}

}  // namespace

void add_calibrate(Command& program) {
  Command command = program.add_command("calibrate", "measure this machine and keep it for init");
  const auto arguments = std::make_shared<CalibrateArguments>();
  command.add_option("--seconds", arguments->seconds, "time to spend")
      .between(1.0, 3600.0)
      .with_default();
  command.add_flag("--gpu", arguments->gpu,
                   "measure GPUs instead: one rank on each; of a single GPU, ranks that share it");
  command.add_option("--devices", arguments->devices,
                     "the GPUs of --gpu, as 0,1,2; one that is named twice has two ranks");
  command.add_flag("--processes", arguments->processes,
                   "with --gpu: ranks that share a GPU are processes (start MPS before)");
  command.add_flag("--verbose", arguments->verbose, "print every measurement");
  command.calls([arguments] { calibrate(*arguments); });
}

}  // namespace weft
