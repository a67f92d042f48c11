// plan_regret: the plan that the library chooses against every plan forced by hand, and what it
// predicted against what was measured, for every collective and size. Ranks are threads, and are
// timed as `weft calibrate` does it (turns.h). The chosen plan is measured twice, by choice and by
// force: what these two differ by is noise.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <thread>

#include "algorithms/generators/generators.h"
#include "include/weft.h"
#include "perf/common/device.h"
#include "perf/common/errors.h"
#include "perf/regret/paired.h"
#include "src/tools/command_line.h"
#include "src/tools/turns.h"

namespace weft::perf {
namespace {

struct RegretOptions {
  int ranks = 4, repetitions = 15;
  uint64_t least = 1 << 10, most = 256 << 20;
  int factor = 4;
  bool unbound = false;
  std::vector<std::string> collectives = {"all_reduce", "all_gather", "reduce_scatter",
                                          "broadcast",  "reduce",     "alltoall"};
};

// The call of one rank; `size` is the whole array.
ncclResult_t call(CollectiveKind kind, size_t size, int ranks, const void* in, void* out, int root,
                  ncclComm_t comm, cudaStream_t stream) {
  const size_t all = size / sizeof(float), part = all / static_cast<size_t>(ranks);
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return ncclAllReduce(in, out, all, ncclFloat32, ncclSum, comm, stream);
    case CollectiveKind::kAllGather:
      return ncclAllGather(in, out, part, ncclFloat32, comm, stream);
    case CollectiveKind::kReduceScatter:
      return ncclReduceScatter(in, out, part, ncclFloat32, ncclSum, comm, stream);
    case CollectiveKind::kBroadcast:
      return ncclBroadcast(in, out, all, ncclFloat32, root, comm, stream);
    case CollectiveKind::kReduce:
      return ncclReduce(in, out, all, ncclFloat32, ncclSum, root, comm, stream);
    case CollectiveKind::kAllToAll:
      return ncclAlltoAll(in, out, part, ncclFloat32, comm, stream);
    case CollectiveKind::kGather:
      return ncclGather(in, out, part, ncclFloat32, root, comm, stream);
    default:
      return ncclScatter(in, out, part, ncclFloat32, root, comm, stream);
  }
}

// A plan that takes part: the library's own choice (no name), or a forced one.
struct Entrant {
  std::string plan;
  std::map<uint64_t, std::vector<double>> times;  // by size, in the order of repetitions
  std::map<uint64_t, std::string> chosen;         // by size, where the library chooses
  std::string twins;                              // other names of the same schedule
  bool out = false;                               // it cannot do this size, and larger ones
};

// Generators that make the same schedule are one plan.
std::vector<Entrant> entrants_for(CollectiveKind kind, int ranks) {
  std::vector<Entrant> list(1);
  std::vector<Schedule> schedules(1);
  for (const Generator& generator : generators()) {
    if (generator.channels > kUsualChannels) continue;  // for GPUs of several hosts
    const Collective collective{kind, ranks, 0};
    if (!generator.supports(collective) || (generator.reaches && weftHostMode() == 1)) continue;
    Schedule schedule = generator.make(collective, false);
    schedule.name.clear();
    const auto same = std::find(schedules.begin() + 1, schedules.end(), schedule);
    if (same != schedules.end()) {
      list[static_cast<size_t>(same - schedules.begin())].twins +=
          fmt::format(" {}", generator.name);
      continue;
    }
    Entrant& entrant = list.emplace_back();
    entrant.plan = generator.name;
    entrant.twins = fmt::format(" {}", generator.name);
    schedules.push_back(std::move(schedule));
  }
  return list;
}

class Contest {
 public:
  explicit Contest(const RegretOptions& options)
      : options_(options), laps_(static_cast<size_t>(options.ranks)) {
    const uint64_t bytes = std::max<uint64_t>(options.most, warming_bytes());
    for (int r = 0; r < options.ranks; r++) {
      device::select(r);
      streams_.push_back(device::stream(r, false));
      inputs_.push_back(device::allocate(bytes));
      outputs_.push_back(device::allocate(bytes));
      device::fill(inputs_.back(), 0, bytes);
      device::fill(outputs_.back(), 0, bytes);
    }
  }

  void run(const std::string& collective) {
    const auto kind = parse_collective(collective);
    if (!kind) throw std::runtime_error(collective + " is no collective");
    std::vector<Entrant> all = entrants_for(*kind, options_.ranks);
    predicted_us_.clear();
    // A communicator serves all: with one each, messages would lie in colder memory than they do in
    // a job. On GPUs a plan that is refused must not harm others; there plans take turns, so that
    // what disturbs the machine for a while does not hit one of them alone.
    const size_t together = weftHostMode() == 1 ? all.size() : 1;
    for (turn_ = 0; turn_ < turns(); turn_++)
      for (size_t first = 0; first < all.size(); first += together) {
        for (size_t e = first; e < first + together; e++) all[e].out = false;
        compete(collective, *kind, {all.data() + first, together});
      }
    for (const uint64_t size : sizes()) report(collective, size, all);
  }

  // Exit code: 1 where some choice was beyond doubt more than `limit` slower than the best.
  int finish(double limit) {
    const auto above = std::count_if(regrets_.begin(), regrets_.end(),
                                     [](const Comparison& r) { return r.ratio > kBar; });
    const auto sure = std::count_if(regrets_.begin(), regrets_.end(),
                                    [](const Comparison& r) { return r.low > kBar; });
    const auto slow = std::count_if(regrets_.begin(), regrets_.end(),
                                    [&](const Comparison& r) { return r.low > limit; });
    std::vector<double> ratios;
    for (const Comparison& regret : regrets_) ratios.push_back(regret.ratio);
    fmt::print(
        "# regret: median {:.3f}, largest {:.3f}; {} of {} rows above {:.2f}, {} of them beyond "
        "doubt\n",
        median(ratios), ratios.empty() ? 0 : *std::max_element(ratios.begin(), ratios.end()), above,
        ratios.size(), kBar, sure);
    std::vector<double> noise;
    for (const Comparison& n : noise_) noise.push_back(std::max(n.ratio, 1 / n.ratio));
    fmt::print(
        "# the same plan measured twice: median {:.3f}, largest {:.3f}; {} of {} rows above "
        "{:.2f}\n",
        median(noise), noise.empty() ? 0 : *std::max_element(noise.begin(), noise.end()),
        std::count_if(noise.begin(), noise.end(), [](double n) { return n > kBar; }), noise.size(),
        kBar);
    fmt::print("# predicted against measured: median error {:.0f}% of {} rows\n",
               100 * median(errors_), errors_.size());
    return limit > 0 && slow > 0 ? 1 : 0;
  }

 private:
  std::vector<uint64_t> sizes() const {
    std::vector<uint64_t> list;
    for (uint64_t size = options_.least; size <= options_.most;
         size *= static_cast<uint64_t>(options_.factor))
      list.push_back(size);
    return list;
  }

  void compete(const std::string& collective, CollectiveKind kind, std::span<Entrant> entrants) {
    connect();
    for (const uint64_t size : sizes())
      if (entrants[0].plan.empty()) ask(entrants[0], collective, kind, size);
    for (const uint64_t size : sizes())
      in_threads([&](int rank) {
        if (weftHostMode() == 1 && !options_.unbound) stay_on_core(rank);
        measure(entrants, collective, kind, size, rank);
      });
    in_threads([&](int rank) {
      check(ncclCommDestroy(comms_[static_cast<size_t>(rank)]), "ncclCommDestroy");
    });
  }

  static void check(ncclResult_t result, const char* what) {
    if (result != ncclSuccess)
      throw std::runtime_error(
          fmt::format("{}: {} ({})", what, ncclGetErrorString(result), ncclGetLastError(nullptr)));
  }

  void in_threads(const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int r = 0; r < options_.ranks; r++)
      threads.emplace_back([&, r] {
        try {
          device::select(r);
          work(r);
        } catch (const std::exception& error) {
          fmt::print(stderr, "plan_regret: rank {}: {}\n", r, error.what());
          std::_Exit(3);  // the others would wait for this one
        }
      });
    for (std::thread& thread : threads) thread.join();
  }

  void connect() {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    comms_.assign(static_cast<size_t>(options_.ranks), nullptr);
    in_threads([&](int rank) {
      check(ncclCommInitRank(&comms_[static_cast<size_t>(rank)], options_.ranks, id, rank),
            "ncclCommInitRank");
      if (weftHostMode() == 1) warm(rank);
    });
  }

  uint64_t warming_bytes() const { return kWarmingChunk * static_cast<uint64_t>(options_.ranks); }
  // See turns.h.
  void warm(int rank) {
    ncclComm_t comm = comms_[static_cast<size_t>(rank)];
    check(weftForcePlan(comm, "all_reduce", kDirect.name.data()), "weftForcePlan");
    for (int i = 0; i < kWarmingCalls; i++)
      check(one(CollectiveKind::kAllReduce, warming_bytes(), rank), "call");
    check(weftForcePlan(comm, "all_reduce", nullptr), "weftForcePlan");
  }

  bool force(const Entrant& entrant, const std::string& collective, int rank) {
    return weftForcePlan(comms_[static_cast<size_t>(rank)], collective.c_str(),
                         entrant.plan.empty() ? nullptr : entrant.plan.c_str()) == ncclSuccess;
  }

  ncclResult_t one(CollectiveKind kind, uint64_t size, int rank, int root = 0) {
    const auto r = static_cast<size_t>(rank);
    return call(kind, size, options_.ranks, inputs_[r], outputs_[r], root, comms_[r], streams_[r]);
  }

  void ask(Entrant& entrant, const std::string& collective, CollectiveKind kind, uint64_t size) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    check(ncclGroupStart(), "ncclGroupStart");
    check(one(kind, size, 0), "call");
    check(ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd");
    if (info.estimatedTime != NCCL_UNDEF_FLOAT)
      predicted_us_[size] = static_cast<double>(info.estimatedTime);
    const char* plan = "";
    check(weftPlanOf(comms_[0], collective.c_str(), size, &plan), "weftPlanOf");
    entrant.chosen[size] = plan;
  }

  // How often a communicator is made for every plan, and in each of these turns: fewer repetitions
  // of what takes long, whose times vary less.
  int turns() const { return weftHostMode() == 1 ? 1 : std::min(options_.repetitions, 5); }
  int repetitions_of(uint64_t size) const {
    const int some = size <= (16u << 20)   ? options_.repetitions
                     : size <= (64u << 20) ? options_.repetitions / 2
                                           : options_.repetitions / 3;
    return std::min(options_.repetitions, std::max(some, 5)) / turns();
  }

  // See turns.h.
  void measure(std::span<Entrant> entrants, const std::string& collective, CollectiveKind kind,
               uint64_t size, int rank) {
    const auto r = static_cast<size_t>(rank);
    const int calls = calls_at(size);
    for (Entrant& entrant : entrants) {
      meet();
      bool refused = !force(entrant, collective, rank);
      for (int i = 0; i < options_.ranks && !entrant.out && !refused; i++)
        refused = one(kind, size, rank, i) != ncclSuccess;
      device::synchronize(streams_[r]);
      meet();
      if (rank == 0 && refused) entrant.out = true;
      meet();
    }
    const int rounds = repetitions_of(size);
    RootTurns roots(options_.ranks, turn_);
    std::vector<Lap>& laps = laps_[r];
    laps.clear();
    for (int round = 0; round < rounds; round++)
      for (const size_t e : order_of_round(entrants.size(), round)) {
        if (entrants[e].out) continue;
        force(entrants[e], collective, rank);
        laps.push_back(run_batch(
            calls, [&] { meet(); },
            [&](int) { check(one(kind, size, rank, roots.next()), "call"); },
            [&] { device::synchronize(streams_[r]); }));
      }
    meet();
    if (rank != 0) return;
    size_t lap = 0;
    std::vector<Lap> ranks(laps_.size());
    for (int round = 0; round < rounds; round++)
      for (const size_t e : order_of_round(entrants.size(), round)) {
        if (entrants[e].out) continue;
        for (size_t other = 0; other < ranks.size(); other++) ranks[other] = laps_[other][lap];
        entrants[e].times[size].push_back(pace(ranks, calls));
        lap++;
      }
  }

  void meet() {
    if (!meeting_.meet(options_.ranks)) throw std::runtime_error("the other ranks do not come");
  }

  void report(const std::string& collective, uint64_t size, const std::vector<Entrant>& entrants) {
    const auto times = [&](const Entrant& e) {
      const auto it = e.times.find(size);
      return it == e.times.end() ? std::vector<double>{} : it->second;
    };
    const auto it = entrants[0].chosen.find(size);
    const std::string plan = it == entrants[0].chosen.end() ? "?" : it->second;
    const auto is_chosen = [&](const Entrant& e) {
      return (e.twins + " ").find(" " + plan + " ") != std::string::npos;
    };
    // The chosen plan ran twice in every repetition: the mean counts.
    std::vector<double> chosen = times(entrants[0]);
    Comparison regret, twice;
    for (const Entrant& entrant : entrants)
      if (is_chosen(entrant)) {
        const std::vector<double> forced = times(entrant);
        twice = compare(chosen, forced);
        for (size_t i = 0; i < std::min(chosen.size(), forced.size()); i++)
          chosen[i] = std::sqrt(chosen[i] * forced[i]);
      }
    const double us = median(chosen), predicted = predicted_us_[size];
    double best = us;
    std::string name = plan, all;
    for (const Entrant& entrant : entrants) {
      if (entrant.plan.empty()) continue;
      const std::vector<double> list = times(entrant);
      all += list.empty() ? fmt::format(" {}=-", entrant.plan)
                          : fmt::format(" {}={:.1f}", entrant.plan, median(list));
      const Comparison compared = compare(chosen, list);
      if (!is_chosen(entrant) && compared.ratio > regret.ratio) {
        regret = compared;
        best = median(list);
        name = entrant.plan;
      }
    }
    regrets_.push_back(regret);
    noise_.push_back(twice);
    if (predicted > 0) errors_.push_back(std::abs(predicted / us - 1));
    const char* verdict = regret.ratio <= kBar ? "" : regret.low > kBar ? "SLOW" : "noise?";
    fmt::print(
        "{:14} {:>11} {:10} {:>11.1f} {:10} {:>11.1f} {:>6.3f} {:>13} {:>6.3f} {:6} {:>11.1f} {}\n",
        collective, size, plan, us, name, best, regret.ratio,
        fmt::format("{:.2f}..{:.2f}", regret.low, regret.high), twice.ratio, verdict, predicted,
        all);
    std::fflush(stdout);
  }

  static constexpr double kBar = 1.1;

  const RegretOptions& options_;
  Meeting meeting_;
  int turn_ = 0;
  std::vector<ncclComm_t> comms_;  // of every rank, as are those below
  std::vector<cudaStream_t> streams_;
  std::vector<void*> inputs_, outputs_;
  std::map<uint64_t, double> predicted_us_;
  std::vector<std::vector<Lap>> laps_;  // in the order of turns
  std::vector<Comparison> regrets_, noise_;
  std::vector<double> errors_;
};

// The exit code.
int hold(const RegretOptions& options, double limit) {
  if (const char* why = device::unavailable()) {
    fmt::print(stderr, "plan_regret: {}\n", why);
    return 2;
  }
  try {
    Contest contest(options);
    fmt::print(
        "# {} ranks on {}\n# {:12} {:>11} {:10} {:>11} {:10} {:>11} {:>6} {:>13} {:>6} {:6} {:>11} "
        "all\n",
        options.ranks, device::name(), "collective", "size", "chosen", "us", "best", "us", "regret",
        "95%", "twice", "", "predicted");
    for (const std::string& collective : options.collectives) contest.run(collective);
    return contest.finish(limit);
  } catch (const std::exception& error) {
    fmt::print(stderr, "plan_regret: {}\n", error.what());
    return 3;
  }
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  // A plan that hangs must not look like one that takes long.
  setenv("WEFT_TIMEOUT", "20", 0);
  weft::perf::RegretOptions options;
  double limit = 0;
  weft::CommandLine program(
      "plan_regret", "The chosen plan against every plan forced by hand; times in us, per call");
  program.add_option("-t", options.ranks, "ranks, as threads").between(2, 64);
  program.add_option("-b", options.least, "least bytes").in_bytes();
  program.add_option("-e", options.most, "most bytes").in_bytes();
  program.add_option("-f", options.factor, "factor between sizes").between(2, 1024);
  program.add_option("-r", options.repetitions, "repetitions; the median counts").between(1, 1000);
  program.add_option("--coll", options.collectives, "collectives").separated_by(',');
  program.add_flag("--unbound", options.unbound,
                   "host mode: ranks run where the system puts them, not on cores of their own");
  program.add_option("--limit", limit,
                     "exit 1 where a choice is slower than the best by this factor");
  int code = 0;
  program.calls([&] { code = weft::perf::hold(options, limit); });
  const int usage = program.run(argc, argv);
  return usage != 0 ? usage : code;
}
