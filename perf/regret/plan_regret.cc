// plan_regret compares the plan that the library chooses with every forced plan, and the predicted
// time with the measured time, for every collective and size. Ranks are threads or processes, and
// are timed as `weft calibrate` does (interleaved_timing.h). The chosen plan is measured twice, by
// choice and by force. The difference between the two is noise.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "perf/common/device.h"
#include "perf/regret/contest.h"
#include "src/tools/command_line.h"

namespace weft::perf {
namespace {

constexpr int kFailed = 3;  // exit code

// Runs one rank. Returns its exit code.
int play(const RegretOptions& options, Board& board, int rank) {
  try {
    return Contest(options, board, rank).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "plan_regret: rank {}: {}\n", rank, error.what());
    board.give_up();
    return kFailed;
  }
}

int hold_threads(const RegretOptions& options, Board& board) {
  int code = 0;
  std::vector<std::thread> threads;
  for (int r = 0; r < options.ranks; r++)
    threads.emplace_back([&, r] {
      const int mine = play(options, board, r);
      if (mine == kFailed) std::_Exit(kFailed);  // others may wait for this rank in a call
      if (r == 0) code = mine;
    });
  for (std::thread& thread : threads) thread.join();
  return code;
}

int hold_processes(const RegretOptions& options, Board& board) {
  std::vector<pid_t> children;
  for (int r = 0; r < options.ranks; r++) {
    const pid_t child = fork();
    if (child == 0) {
      if (options.own_hosts) setenv("NCCL_HOSTID", fmt::format("plan_regret {}", r).c_str(), 1);
      const int code = play(options, board, r);
      std::fflush(stdout);
      _exit(code);
    }
    if (child < 0) {
      fmt::print(stderr, "plan_regret: cannot start a process\n");
      board.give_up();
      break;
    }
    children.push_back(child);
  }
  int code = static_cast<int>(children.size()) == options.ranks ? 0 : kFailed;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    code = std::max(code, WIFEXITED(status) ? WEXITSTATUS(status) : kFailed);
  }
  return code;
}

// Runs the contest. Returns the exit code.
int hold(const RegretOptions& options) {
  // Processes that share a GPU also share its hardware queues.
  if (options.processes) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 0);
  if (const char* why = device::unavailable()) {
    fmt::print(stderr, "plan_regret: {}\n", why);
    return 2;
  }
  Board board(options);
  return options.processes ? hold_processes(options, board) : hold_threads(options, board);
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  // A plan that hangs must not look like a slow plan.
  setenv("WEFT_TIMEOUT", "20", 0);
  weft::perf::RegretOptions options;
  weft::CommandLine program(
      "plan_regret", "The chosen plan against every plan forced by hand; times in us, per call");
  program.add_option("-t", options.ranks, "ranks").between(2, 64);
  program.add_flag("--processes", options.processes,
                   "ranks are processes, not threads (start MPS if they share a GPU)");
  program.add_flag("--own-hosts", options.own_hosts,
                   "processes that are each their own host: over the network, on loopback");
  program.add_flag("--plain", options.plain,
                   "buffers of malloc or cudaMalloc, not of ncclMemAlloc, which processes share");
  program.add_option("-b", options.least, "least bytes").in_bytes();
  program.add_option("-e", options.most, "most bytes").in_bytes();
  program.add_option("-f", options.factor, "factor between sizes").between(2, 1024);
  program.add_option("-r", options.repetitions, "repetitions; the median counts").between(1, 1000);
  program.add_option("--coll", options.collectives, "collectives")
      .separated_by(',')
      .one_of({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall",
               "gather", "scatter"});
  program.add_flag("--unbound", options.unbound,
                   "host mode: ranks run where the system puts them, not on cores of their own");
  program.add_option("--limit", options.limit,
                     "exit 1 where a choice is slower than the best by this factor");
  int code = 0;
  program.calls([&] {
    options.processes = options.processes || options.own_hosts;
    code = weft::perf::hold(options);
  });
  const int usage = program.run(argc, argv);
  return usage != 0 ? usage : code;
}
