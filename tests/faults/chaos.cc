// chaos: random runs with a fault each. usage: chaos [--shrink | --gpu | --net | --verbs] [--runs
// N]
// [--seed S] [--jobs N] Run r has seed S + r: `chaos --runs 1 --seed SEED` repeats a run.
//   --shrink  one rank is killed or stopped while all make calls; the survivors shrink and go on
//   --gpu     the same on a GPU that all ranks share, on streams and in graphs. Without MPS, which
//             ends kernels of survivors when a client dies in a kernel
//   --net     hosts are network namespaces, and the network between them fails. Needs root
//   --verbs   in the guest of tests/rdma, over soft-RoCE devices (tests/rdma/chaos)
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>

#include "tests/faults/chaos_hosts.h"
#include "tests/faults/chaos_rank.h"
#include "tests/faults/chaos_wire.h"
#include "tests/faults/jobs.h"
#include "tests/faults/judge.h"
#include "tests/faults/survivor.h"
#include "tests/support/processes.h"
#include "tests/support/require.h"
#include "weft.h"

namespace weft::test {
namespace {

enum class Kind { kCalls, kShrink, kGpu, kNetwork, kVerbs };

struct Options {
  Kind kind = Kind::kCalls;
  int runs = 1, jobs = 1;
  uint64_t seed = 0;
};

// A run's description, and what went wrong in it; empty: nothing.
struct Verdict {
  std::string run, wrong;
  double worst_s = 0;
};

// The argument of a scenario: seed, stage's file, and one word more.
struct Argument {
  explicit Argument(const std::string& text) { std::istringstream(text) >> seed >> file >> word; }
  uint64_t seed = 0;
  std::string file, word;
};

WEFT_SCENARIO(chaos) {
  const Argument argument(context.argument);
  Stage stage(argument.file);
  const ChaosPlan plan(argument.seed, static_cast<ChaosPlan::Medium>(std::stoi(argument.word)));
  ChaosRank(plan, context.rank, stage).play();
}

WEFT_SCENARIO(survive) {
  const Argument argument(context.argument);
  Stage stage(argument.file);
  const SurvivalPlan plan(argument.seed);
  Survivor(plan, context.rank, stage, argument.word == "gpu").play();
}

std::map<std::string, std::string> host_environment(HostLayout hosts, int rank) {
  return {{"NCCL_HOSTID", host_of(hosts, rank)},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_IB_DISABLE", "1"}};
}

std::map<std::string, std::string> environment_of(const ChaosPlan& plan, int rank) {
  if (plan.medium == ChaosPlan::kVerbs) return verbs_environment(plan, rank);
  if (plan.medium == ChaosPlan::kNetwork) return namespace_environment(plan, rank);
  auto environment = host_environment(plan.hosts, rank);
  environment["WEFT_WIRE"] = plan.wire;
  if (!plan.harmless()) environment["WEFT_INIT_TIMEOUT"] = "2";
  return environment;
}

Verdict run_calls(uint64_t seed, ProcessOptions options, Stage& stage, ChaosPlan::Medium medium) {
  const ChaosPlan plan(seed, medium);
  options.argument += " " + std::to_string(medium);
  options.environment = [&](int rank) { return environment_of(plan, rank); };
  std::optional<ChaosHosts> hosts;
  if (medium == ChaosPlan::kNetwork) {
    hosts.emplace(plan, stage);
    options.place = [&](int rank, const auto& start) { hosts->place(rank, start); };
  }
  if (medium == ChaosPlan::kVerbs) options.limit *= 2;
  Verdict verdict{plan.describe(), "", 0};
  const auto results = run_processes("chaos", plan.ranks, options);
  if (medium == ChaosPlan::kVerbs) mend_wires();
  const std::vector<int> victims(plan.dies() ? 1 : 0, plan.victim);
  verdict.wrong = judge(results, victims, plan.has_one_record(), verdict.worst_s);
  return verdict;
}

Verdict run_survivors(uint64_t seed, ProcessOptions options, bool gpu) {
  const SurvivalPlan plan(seed);
  options.argument += gpu ? " gpu" : " host";
  options.limit = std::chrono::seconds(60);
  options.environment = [&](int rank) {
    auto environment = host_environment(plan.hosts, rank);
    if (plan.no_peer_access) environment["NCCL_P2P_DISABLE"] = "1";
    return environment;
  };
  Verdict verdict{plan.describe(), "", 0};
  const auto results = run_processes("survive", plan.ranks, options);
  const std::vector<int> victims(plan.stops ? 0 : 1, plan.victim);
  verdict.wrong = judge(results, victims, true, verdict.worst_s);
  return verdict;
}

Verdict run_once(const Options& chosen, uint64_t seed, const std::string& folder) {
  const std::string file = folder + "/" + std::to_string(seed);
  Stage stage(file);
  ProcessOptions options;
  options.ids = 0;
  options.limit = std::chrono::seconds(25);
  options.argument = std::to_string(seed) + " " + file;
  const bool survives = chosen.kind == Kind::kShrink || chosen.kind == Kind::kGpu;
  const auto medium = chosen.kind == Kind::kVerbs     ? ChaosPlan::kVerbs
                      : chosen.kind == Kind::kNetwork ? ChaosPlan::kNetwork
                                                      : ChaosPlan::kSockets;
  const Verdict verdict = survives ? run_survivors(seed, options, chosen.kind == Kind::kGpu)
                                   : run_calls(seed, options, stage, medium);
  std::filesystem::remove(file);
  return verdict;
}

int run(const Options& chosen) {
  char folder[] = "/tmp/weft-chaos-XXXXXX";
  if (mkdtemp(folder) == nullptr) throw std::runtime_error("mkdtemp");
  int failed = 0;
  double worst_s = 0;
  std::mutex mutex;  // protects both, and the output
  run_jobs(static_cast<size_t>(chosen.runs), chosen.jobs, [&](size_t i) {
    const Verdict verdict = run_once(chosen, chosen.seed + i, folder);
    const std::lock_guard lock(mutex);
    worst_s = std::max(worst_s, verdict.worst_s);
    if (verdict.wrong.empty()) return;
    failed++;
    std::printf("FAILED %s\n%s", verdict.run.c_str(), verdict.wrong.c_str());
    std::fflush(stdout);
  });
  std::filesystem::remove_all(folder);
  std::printf("%d runs from seed %llu, %d failed, the longest call after a fault took %.3f s\n",
              chosen.runs, static_cast<unsigned long long>(chosen.seed), failed, worst_s);
  return failed == 0 ? 0 : 1;
}

Options parse(const std::vector<std::string>& words) {
  Options chosen;
  chosen.seed = test_seed();
  for (size_t i = 0; i < words.size(); i++) {
    const std::string& option = words[i];
    static const std::map<std::string, Kind> kinds = {{"--shrink", Kind::kShrink},
                                                      {"--gpu", Kind::kGpu},
                                                      {"--net", Kind::kNetwork},
                                                      {"--verbs", Kind::kVerbs}};
    if (const auto kind = kinds.find(option); kind != kinds.end()) {
      chosen.kind = kind->second;
      continue;
    }
    if (++i == words.size()) throw std::invalid_argument(option + " needs a value");
    if (option == "--runs")
      chosen.runs = std::stoi(words[i]);
    else if (option == "--seed")
      chosen.seed = std::stoull(words[i]);
    else if (option == "--jobs")
      chosen.jobs = std::stoi(words[i]);
    else
      throw std::invalid_argument("unknown option " + option);
  }
  // One GPU, and one pair of wires.
  if (chosen.kind == Kind::kGpu || chosen.kind == Kind::kVerbs) chosen.jobs = 1;
  return chosen;
}

// Why runs of this kind cannot be made here; empty: they can.
std::string obstacle(Kind kind) {
  if (kind == Kind::kVerbs) return verbs_obstacle();
  if (kind == Kind::kNetwork) return namespaces_obstacle();
  if (kind == Kind::kGpu && weftHostMode() != 0) return "no GPU here, or WEFT_HOST_MODE is set";
  return "";
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (int exit_code = 0; weft::test::play_scenario(&exit_code)) return exit_code;
  try {
    const auto chosen = weft::test::parse({argv + 1, argv + argc});
    if (const std::string why = weft::test::obstacle(chosen.kind); !why.empty()) {
      const char* feature = chosen.kind == weft::test::Kind::kGpu       ? "gpu"
                            : chosen.kind == weft::test::Kind::kNetwork ? "namespaces"
                                                                        : "rdma";
      std::fprintf(stderr, "SKIPPED: %s\n", why.c_str());
      return weft::test::is_required(feature) ? 1 : 77;
    }
    return weft::test::run(chosen);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chaos: %s\n", error.what());
    return 2;
  }
}
