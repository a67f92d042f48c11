// chaos: random runs with a fault each. usage: chaos [--runs N] [--seed S] [--jobs N]
// Run r has seed S + r: `chaos --runs 1 --seed SEED` repeats a run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <thread>

#include "tests/faults/chaos_rank.h"
#include "tests/support/processes.h"

namespace weft::test {
namespace {

WEFT_SCENARIO(chaos) {
  std::istringstream words(context.argument);
  uint64_t seed = 0;
  std::string file;
  words >> seed >> file;
  Stage stage(file);
  const ChaosPlan plan(seed);
  ChaosRank(plan, context.rank, stage).play();
}

// What went wrong; empty: nothing.
std::string run_once(const ChaosPlan& plan, const std::string& folder, double& worst_s) {
  const std::string file = folder + "/" + std::to_string(plan.seed);
  { const Stage made(file); }
  ProcessOptions options;
  options.ids = 0;
  options.limit = std::chrono::seconds(25);
  options.argument = std::to_string(plan.seed) + " " + file;
  options.environment = [&](int rank) -> std::map<std::string, std::string> {
    return {{"NCCL_HOSTID", plan.host_of(rank)},
            {"NCCL_SOCKET_IFNAME", "lo"},
            {"NCCL_IB_DISABLE", "1"},
            {"WEFT_INIT_TIMEOUT", "2"}};
  };
  const std::vector<ProcessResult> results = run_processes("chaos", plan.ranks, options);
  std::filesystem::remove(file);
  const bool dies = plan.fault == ChaosPlan::kKill || plan.fault == ChaosPlan::kForkAndKill;
  std::string wrong;
  for (size_t rank = 0; rank < results.size(); rank++) {
    const ProcessResult& result = results[rank];
    std::istringstream lines(result.output);
    std::string output;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("TOOK "))
        worst_s = std::max(worst_s, std::atof(line.c_str() + 5));
      else
        output += "    " + line + "\n";
    }
    if (dies && static_cast<int>(rank) == plan.victim && !result.hung) continue;
    if (result.hung || result.exit_code != 0)
      wrong += "  rank " + std::to_string(rank) +
               (result.hung          ? " hung"
                : result.signal != 0 ? " ended by signal " + std::to_string(result.signal)
                                     : "") +
               "\n" + output;
  }
  return wrong;
}

int run(int runs, uint64_t seed, int jobs) {
  char folder[] = "/tmp/weft-chaos-XXXXXX";
  if (mkdtemp(folder) == nullptr) throw std::runtime_error("mkdtemp");
  std::atomic<int> next{0}, failed{0};
  double worst_s = 0;
  std::mutex mutex;  // protects worst_s and the output
  const auto work = [&] {
    for (int i = next++; i < runs; i = next++) {
      const ChaosPlan plan(seed + static_cast<uint64_t>(i));
      double worst = 0;
      const std::string wrong = run_once(plan, folder, worst);
      const std::lock_guard lock(mutex);
      worst_s = std::max(worst_s, worst);
      if (wrong.empty()) continue;
      failed++;
      std::printf("FAILED %s\n%s", plan.describe().c_str(), wrong.c_str());
      std::fflush(stdout);
    }
  };
  std::vector<std::thread> workers;
  for (int j = 1; j < jobs; j++) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  std::filesystem::remove_all(folder);
  std::printf("%d runs from seed %llu, %d failed, the longest call after a fault took %.3f s\n",
              runs, static_cast<unsigned long long>(seed), failed.load(), worst_s);
  return failed == 0 ? 0 : 1;
}

int main_of(int argc, char** argv) {
  int runs = 1, jobs = 1;
  uint64_t seed = test_seed();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--runs")
      runs = std::stoi(argv[i + 1]);
    else if (option == "--seed")
      seed = std::stoull(argv[i + 1]);
    else if (option == "--jobs")
      jobs = std::stoi(argv[i + 1]);
    else
      throw std::invalid_argument("unknown option " + option);
  }
  if (argc % 2 == 0) throw std::invalid_argument("an option needs a value");
  return run(runs, seed, jobs);
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (int exit_code = 0; weft::test::play_scenario(&exit_code)) return exit_code;
  try {
    return weft::test::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chaos: %s\n", error.what());
    return 2;
  }
}
