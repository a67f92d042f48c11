// plan_regret: the plan that the library chooses against every plan forced by hand, and what it
// predicted against what was measured, for every collective and size. Ranks are threads.
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <thread>

#include "algorithms/generators/generators.h"
#include "include/weft.h"
#include "perf/common/device.h"
#include "perf/common/errors.h"
#include "src/tools/command_line.h"

namespace weft::perf {
namespace {

using Clock = std::chrono::steady_clock;

struct RegretOptions {
  int ranks = 4, repetitions = 9;
  uint64_t least = 1 << 10, most = 64 << 20;
  int factor = 4;
  bool fastest = false;
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
  std::vector<ncclComm_t> comms;
  std::map<uint64_t, std::vector<double>> times;  // by size
  bool out = false;                               // it cannot do this
  double time(uint64_t size, bool least) {
    std::vector<double>& list = times[size];
    std::sort(list.begin(), list.end());
    return list.empty() ? 0 : least ? list.front() : list[list.size() / 2];
  }
};

std::vector<Entrant> entrants_for(CollectiveKind kind, int ranks) {
  std::vector<Entrant> list(1);
  for (const Generator& generator : generators()) {
    if (generator.channels > kUsualChannels) continue;  // for GPUs of several hosts
    if (generator.supports({kind, ranks, 0}) && !(generator.reaches && weftHostMode() == 1))
      list.push_back({std::string(generator.name), {}, {}, false});
  }
  return list;
}

class Contest {
 public:
  explicit Contest(const RegretOptions& options) : options_(options), barrier_(options.ranks) {
    for (int r = 0; r < options.ranks; r++) {
      device::select(r);
      streams_.push_back(device::stream(r, false));
      inputs_.push_back(device::allocate(options.most));
      outputs_.push_back(device::allocate(options.most));
      device::fill(inputs_.back(), 0, options.most);
    }
  }

  void run(const std::string& collective) {
    const auto kind = parse_collective(collective);
    if (!kind) throw std::runtime_error(collective + " is no collective");
    std::vector<Entrant> all = entrants_for(*kind, options_.ranks);
    predicted_us_.clear();
    // On GPUs communicators share thread blocks, so there is one at a time.
    const size_t together = weftHostMode() == 1 ? all.size() : 1;
    for (size_t first = 0; first < all.size(); first += together)
      compete(collective, *kind, {all.data() + first, together});
    for (const uint64_t size : sizes()) report(collective, size, all);
  }

  // Exit code: 1 where some choice was more than `limit` slower than the best.
  int finish(double limit) {
    std::sort(errors_.begin(), errors_.end());
    std::sort(regrets_.begin(), regrets_.end());
    const auto median = [](const std::vector<double>& v) {
      return v.empty() ? 0 : v[v.size() / 2];
    };
    const auto beyond =
        std::count_if(regrets_.begin(), regrets_.end(), [](double r) { return r > 1.1; });
    fmt::print("# regret: median {:.3f}, largest {:.3f}, {} of {} above 1.10\n", median(regrets_),
               regrets_.empty() ? 0 : regrets_.back(), beyond, regrets_.size());
    fmt::print("# predicted against measured: median error {:.0f}% of {} rows\n",
               100 * median(errors_), errors_.size());
    return limit > 0 && !regrets_.empty() && regrets_.back() > limit ? 1 : 0;
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
    for (Entrant& entrant : entrants) connect(entrant, collective);
    for (const uint64_t size : sizes())
      in_threads([&](int rank) { measure(entrants, kind, size, rank); });
    for (Entrant& entrant : entrants)
      in_threads([&](int rank) {
        check(ncclCommDestroy(entrant.comms[static_cast<size_t>(rank)]), "ncclCommDestroy");
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

  void connect(Entrant& entrant, const std::string& collective) {
    if (entrant.plan.empty()) {
      unsetenv("WEFT_PLAN");
    } else {
      setenv("WEFT_PLAN", (collective + "=" + entrant.plan).c_str(), 1);
    }
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    entrant.comms.resize(static_cast<size_t>(options_.ranks));
    in_threads([&](int rank) {
      check(ncclCommInitRank(&entrant.comms[static_cast<size_t>(rank)], options_.ranks, id, rank),
            "ncclCommInitRank");
    });
    unsetenv("WEFT_PLAN");
  }

  // Roots take turns: calls from one root would overlap, and nobody would see how long one takes.
  ncclResult_t one(const Entrant& entrant, CollectiveKind kind, uint64_t size, int rank,
                   int number = 0) {
    const auto r = static_cast<size_t>(rank);
    return call(kind, size, options_.ranks, inputs_[r], outputs_[r], number % options_.ranks,
                entrant.comms[r], streams_[r]);
  }

  // Plans take turns in every repetition, so that what disturbs the machine disturbs all alike.
  void measure(std::span<Entrant> entrants, CollectiveKind kind, uint64_t size, int rank) {
    const auto r = static_cast<size_t>(rank);
    if (rank == 0 && entrants[0].plan.empty()) {
      ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
      check(ncclGroupStart(), "ncclGroupStart");
      check(one(entrants[0], kind, size, rank), "call");
      check(ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd");
      if (info.estimatedTime != NCCL_UNDEF_FLOAT)
        predicted_us_[size] = static_cast<double>(info.estimatedTime);
    }
    const int calls = size <= (64u << 10)  ? 40
                      : size <= (1u << 20) ? 10
                      : size <= (8u << 20) ? 3
                                           : 1;
    for (Entrant& entrant : entrants) {
      barrier_.arrive_and_wait();
      bool refused = false;
      for (int i = 0; i < options_.ranks && !entrant.out && !refused; i++)
        refused = one(entrant, kind, size, rank, i) != ncclSuccess;
      device::synchronize(streams_[r]);
      barrier_.arrive_and_wait();
      if (rank == 0 && refused) entrant.out = true;
      barrier_.arrive_and_wait();
    }
    for (int repetition = 0; repetition < options_.repetitions; repetition++)
      for (size_t turn = 0; turn < entrants.size(); turn++) {
        // Nobody always follows the same one: what that leaves in the caches would favour some.
        Entrant& entrant = entrants[(turn + static_cast<size_t>(repetition)) % entrants.size()];
        if (entrant.out) continue;
        barrier_.arrive_and_wait();
        const auto begin = Clock::now();
        for (int i = 0; i < calls; i++) check(one(entrant, kind, size, rank, i), "call");
        device::synchronize(streams_[r]);
        barrier_.arrive_and_wait();
        if (rank == 0)
          entrant.times[size].push_back(
              std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls);
      }
  }

  void report(const std::string& collective, uint64_t size, std::vector<Entrant>& entrants) {
    const double chosen = entrants[0].time(size, options_.fastest), predicted = predicted_us_[size];
    double best = chosen;
    std::string name = "chosen", all;
    for (Entrant& entrant : entrants) {
      if (entrant.plan.empty()) continue;
      const double us = entrant.time(size, options_.fastest);
      all += us == 0 ? fmt::format(" {}=-", entrant.plan)
                     : fmt::format(" {}={:.1f}", entrant.plan, us);
      if (us > 0 && us < best) {
        best = us;
        name = entrant.plan;
      }
    }
    regrets_.push_back(chosen / best);
    if (predicted > 0) errors_.push_back(std::abs(predicted / chosen - 1));
    fmt::print("{:14} {:>11} {:>11.1f} {:>11.1f} {:>7.3f} {:12} {:>11.1f} {}\n", collective, size,
               chosen, best, chosen / best, name, predicted, all);
    std::fflush(stdout);
  }

  const RegretOptions& options_;
  std::barrier<> barrier_;
  std::vector<cudaStream_t> streams_;
  std::vector<void*> inputs_, outputs_;
  std::map<uint64_t, double> predicted_us_;
  std::vector<double> regrets_, errors_;
};

// The exit code.
int hold(const RegretOptions& options, double limit) {
  if (const char* why = device::unavailable()) {
    fmt::print(stderr, "plan_regret: {}\n", why);
    return 2;
  }
  try {
    Contest contest(options);
    fmt::print("# {} ranks on {}\n# {:12} {:>11} {:>11} {:>11} {:>7} {:12} {:>11} all\n",
               options.ranks, device::name(), "collective", "size", "chosen", "best", "regret",
               "best plan", "predicted");
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
  weft::perf::RegretOptions options;
  double limit = 0;
  weft::CommandLine program(
      "plan_regret", "The chosen plan against every plan forced by hand; times in us, per call");
  program.add_option("-t", options.ranks, "ranks, as threads").between(2, 64);
  program.add_option("-b", options.least, "least bytes").in_bytes();
  program.add_option("-e", options.most, "most bytes").in_bytes();
  program.add_option("-f", options.factor, "factor between sizes").between(2, 1024);
  program.add_option("-r", options.repetitions, "repetitions; the median counts").between(1, 1000);
  program.add_flag("--fastest", options.fastest,
                   "the fastest repetition counts: for busy machines");
  program.add_option("--coll", options.collectives, "collectives").separated_by(',');
  program.add_option("--limit", limit,
                     "exit 1 where a choice is slower than the best by this factor");
  int code = 0;
  program.calls([&] { code = weft::perf::hold(options, limit); });
  const int usage = program.run(argc, argv);
  return usage != 0 ? usage : code;
}
