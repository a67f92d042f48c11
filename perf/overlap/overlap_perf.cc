// overlap_perf: runs a plan of `weft overlap --plan` and compares predicted with measured times.
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "perf/common/device.h"
#include "perf/common/errors.h"
#include "perf/overlap/planned_rank.h"
#include "src/base/regular_file.h"
#include "src/tools/command_line.h"
#include "src/workload/timeline.h"

namespace weft::perf::overlap {
namespace {

constexpr size_t kMostBytes = 256 << 20;
constexpr int kMostRanks = 64;
constexpr const char* kSummary =
    "Runs a plan of 'weft overlap --plan' with ranks as threads and compares times. Ranks share "
    "the GPUs in turn. First every collective is measured alone. The prediction is the timeline "
    "with these times; compute takes what the plan says (a kernel that spins). In host mode "
    "streams are threads: the order is that of a GPU, the times are not.";

struct Settings {
  std::string plan;
  int runs = 7;
  bool json = false;
};

struct Figures {
  std::vector<double> runs_us;  // of the whole plan, the slowest rank
  std::vector<double> ends_us;  // of calls, the slowest rank, medians
  std::map<std::pair<int, std::pair<CollectiveKind, double>>, double> alone_us;
  bool right = true;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

auto key_of(const workload::PlannedCall& call) {
  return std::pair{call.communicator, std::pair{*call.kind, call.bytes}};
}

// What all ranks do: calls that run together, so many times.
struct Program {
  std::vector<int> calls;
  int runs;
};

std::vector<Program> programs_of(const workload::Plan& plan, int runs) {
  std::vector<Program> programs;
  std::map<std::pair<int, std::pair<CollectiveKind, double>>, bool> known;
  std::vector<int> all;
  for (size_t i = 0; i < plan.calls.size(); i++) {
    all.push_back(static_cast<int>(i));
    if (plan.calls[i].kind && !std::exchange(known[key_of(plan.calls[i])], true))
      programs.push_back({{static_cast<int>(i)}, runs});
  }
  programs.push_back({all, runs});
  return programs;
}

// results[program][run][rank]
using Results = std::vector<std::vector<std::vector<Ran>>>;

Results run_all(const workload::Plan& plan, const std::vector<Program>& programs, bool& right) {
  Results results(programs.size());
  for (size_t p = 0; p < programs.size(); p++)
    results[p].assign(static_cast<size_t>(programs[p].runs) + 1,
                      std::vector<Ran>(static_cast<size_t>(plan.nranks)));
  const Ids ids = make_ids(plan);
  std::barrier meet(plan.nranks);
  std::atomic<bool> all_right = true;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < plan.nranks; rank++)
    threads.emplace_back([&, rank] {
      try {
        PlannedRank mine(plan, rank, ids);
        for (size_t p = 0; p < programs.size(); p++)
          for (auto& run : results[p]) {
            meet.arrive_and_wait();
            run[static_cast<size_t>(rank)] = mine.run(programs[p].calls);
          }
        meet.arrive_and_wait();
        if (!mine.sums_are_right()) all_right = false;
      } catch (const std::exception& error) {
        // Peers may wait for this rank for ever.
        fmt::print(stderr, "overlap_perf: rank {}: {}\n", rank, error.what());
        std::_Exit(kExitLibrary);
      }
    });
  for (std::thread& thread : threads) thread.join();
  right = all_right;
  return results;
}

// The first run of each program warms up.
Figures figures_of(const workload::Plan& plan, const std::vector<Program>& programs,
                   const Results& results) {
  Figures figures;
  for (size_t p = 0; p < programs.size(); p++) {
    std::vector<double> us;
    std::vector<std::vector<double>> ends(plan.calls.size());
    for (size_t r = 1; r < results[p].size(); r++) {
      double slowest = 0;
      std::vector<double> last(plan.calls.size(), 0);
      for (const Ran& ran : results[p][r]) {
        slowest = std::max(slowest, ran.us);
        for (size_t c = 0; c < ran.ends_us.size(); c++) last[c] = std::max(last[c], ran.ends_us[c]);
      }
      us.push_back(slowest);
      for (size_t c = 0; c < last.size(); c++) ends[c].push_back(last[c]);
    }
    if (p + 1 < programs.size()) {
      figures.alone_us[key_of(plan.calls[static_cast<size_t>(programs[p].calls[0])])] = median(us);
      continue;
    }
    figures.runs_us = us;
    for (const auto& each : ends) figures.ends_us.push_back(median(each));
  }
  return figures;
}

// All ranks around a switch: what two collectives at once share is unknown, so they share it all.
Machine around_a_switch(int ranks) {
  Machine machine;
  machine.name = "ranks around a switch";
  for (int r = 0; r < ranks; r++) machine.nodes.push_back({fmt::format("g{}", r)});
  machine.nodes.push_back({"switch", NodeType::kSwitch});
  for (int r = 0; r < ranks; r++) connect(machine, r, ranks, LinkType::kNvlink, 300, 1);
  return machine;
}

struct Prediction {
  double us = 0;
  std::vector<double> ends_us;
};

Prediction predict(const workload::Plan& plan, const Figures& figures) {
  workload::Graph graph = workload::graph_of(plan);
  for (size_t i = 0; i < plan.calls.size(); i++)
    if (plan.calls[i].kind) graph.ops[i].us = figures.alone_us.at(key_of(plan.calls[i]));
  const Machine machine = around_a_switch(plan.nranks);
  workload::CommCosts costs(machine);
  const workload::Timeline line = workload::run(graph, costs);
  Prediction prediction{line.us, std::vector<double>(plan.calls.size(), 0)};
  for (const workload::Span& span : line.spans) {
    double& end = prediction.ends_us[static_cast<size_t>(span.op)];
    end = std::max(end, span.end_us);
  }
  return prediction;
}

int answer(const Settings& settings) {
  if (const char* why = device::unavailable(); why != nullptr) throw UsageError(why);
  const workload::Plan plan =
      workload::plan_from_json(read_regular_file(settings.plan, kMostBytes), settings.plan);
  if (plan.nranks > kMostRanks)
    throw UsageError(
        fmt::format("the plan has {} ranks; {} at most run here", plan.nranks, kMostRanks));
  const std::vector<Program> programs = programs_of(plan, settings.runs);
  Figures figures;
  bool right = true;
  const Results results = run_all(plan, programs, right);
  figures = figures_of(plan, programs, results);
  const Prediction predicted = predict(plan, figures);
  const double measured = median(figures.runs_us);
  std::vector<double> errors;
  for (size_t i = 0; i < plan.calls.size(); i++)
    if (figures.ends_us[i] > 0)
      errors.push_back(std::abs(predicted.ends_us[i] / figures.ends_us[i] - 1));
  const double error = predicted.us / measured - 1;
  if (settings.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"plan", plan.name},
                                              {"ranks", plan.nranks},
                                              {"device", device::name()},
                                              {"planned_us", plan.predicted_us},
                                              {"predicted_us", predicted.us},
                                              {"measured_us", measured},
                                              {"error", error},
                                              {"median_call_error", median(errors)},
                                              {"runs", figures.runs_us.size()},
                                              {"right", right}}
                           .dump());
  } else {
    fmt::print("{}: {} calls of {} ranks on {}\n", plan.name, plan.calls.size(), plan.nranks,
               device::name());
    fmt::print("planned    {:>10.1f} us, on the machine of the plan\n", plan.predicted_us);
    fmt::print("predicted  {:>10.1f} us, with collectives as measured alone\n", predicted.us);
    fmt::print(
        "measured   {:>10.1f} us, median of {}; error {:+.1f}%, of the ends of calls {:.1f}% "
        "in the median\n",
        measured, figures.runs_us.size(), 100 * error, 100 * median(errors));
    if (!right) fmt::print("WRONG DATA\n");
  }
  return right ? kExitOk : kExitFailed;
}

}  // namespace
}  // namespace weft::perf::overlap

int main(int argc, char** argv) {
  using namespace weft::perf;
  weft::CommandLine program("overlap_perf", overlap::kSummary);
  overlap::Settings settings;
  program.add_option("PLAN", settings.plan, "from 'weft overlap --plan'").required();
  program.add_option("-n,--runs", settings.runs, "measured runs, after one to warm up")
      .between(1, 1000)
      .with_default();
  program.add_flag("--json", settings.json, "one JSON object");
  program.calls([&] {
    int code = kExitOk;
    try {
      code = overlap::answer(settings);
    } catch (const UsageError& error) {
      fmt::print(stderr, "overlap_perf: {}\n", error.what());
      code = kExitUsage;
    }
    if (code != kExitOk) throw weft::ExitCode{code};
  });
  return program.run(argc, argv);
}
