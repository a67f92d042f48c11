// faults: runs fault scenarios and prints a table.
// usage: faults [--quick] [--runs N] [--jobs N] [--markdown FILE] [--list] [NAME...]
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <sstream>

#include "tests/faults/jobs.h"
#include "tests/faults/judge.h"
#include "tests/faults/scenario.h"
#include "tests/support/processes.h"

namespace weft::test {
namespace {

std::vector<FaultScenario> all_scenarios() {
  std::vector<FaultScenario> all;
  for (const auto& part :
       {death_scenarios(), exit_scenarios(), fork_scenarios(), user_error_scenarios(),
        lone_scenarios(), status_scenarios(), wire_scenarios()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Its argument is the scenario's name and the stage's file.
WEFT_SCENARIO(fault) {
  std::istringstream words(context.argument);
  std::string name, file;
  words >> name >> file;
  const std::vector<FaultScenario> all = all_scenarios();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.name == name; });
  if (found == all.end()) throw std::invalid_argument(name);
  Stage stage(file);
  Player player(context.rank, *found, stage);
  found->play(player);
}

struct Tally {
  int runs = 0, failed = 0;
  double worst_s = 0;
  std::string first_failure;
  std::string result() const { return failed == 0 ? "ok" : std::to_string(failed) + " failed"; }
};

Tally run_scenario(const FaultScenario& scenario, int runs, const std::string& folder) {
  const std::string file = folder + "/" + scenario.name;
  ProcessOptions options;
  options.ids = 0;
  options.argument = std::string(scenario.name) + " " + file;
  options.limit = std::chrono::milliseconds(static_cast<int64_t>(1000 * (scenario.bound_s + 6)));
  options.environment = [&](int rank) {
    std::map<std::string, std::string> variables = scenario.environment;
    if (!scenario.hosts.empty()) {
      variables["NCCL_HOSTID"] = scenario.hosts[static_cast<size_t>(rank)];
      variables.insert({"NCCL_SOCKET_IFNAME", "lo"});
      variables["NCCL_IB_DISABLE"] = "1";
    }
    return variables;
  };
  Tally tally;
  for (; tally.runs < runs; tally.runs++) {
    std::filesystem::remove(file);
    { const Stage made(file); }
    const auto results = run_processes("fault", scenario.ranks, options);
    const std::string wrong = judge(results, scenario.victims, scenario.one_record, tally.worst_s);
    if (wrong.empty()) continue;
    if (tally.failed++ == 0) tally.first_failure = wrong;
  }
  return tally;
}

struct Options {
  bool quick = false, list = false;
  int runs = 1, jobs = 1;
  std::string markdown;
  std::set<std::string> names;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw std::invalid_argument(word + " needs a value");
      return argv[++i];
    };
    if (word == "--quick")
      options.quick = true;
    else if (word == "--list")
      options.list = true;
    else if (word == "--runs")
      options.runs = std::stoi(value());
    else if (word == "--jobs")
      options.jobs = std::stoi(value());
    else if (word == "--markdown")
      options.markdown = value();
    else if (word.starts_with("-"))
      throw std::invalid_argument("unknown option " + word);
    else
      options.names.insert(word);
  }
  return options;
}

// What this program starts has them, too.
bool has_threads_of_a_sanitizer() {
  const std::filesystem::directory_iterator tasks("/proc/self/task"), end;
  return std::distance(tasks, end) > 1;
}

std::vector<FaultScenario> chosen(const Options& options) {
  std::vector<FaultScenario> chosen;
  const bool has_threads = has_threads_of_a_sanitizer();
  for (const FaultScenario& scenario : all_scenarios()) {
    if (options.names.empty() ? options.quick && scenario.slow
                              : options.names.count(scenario.name) == 0)
      continue;
    if (options.names.empty() && scenario.one_thread && has_threads)
      std::printf("%-32s left out: its processes would have a sanitizer's thread\n", scenario.name);
    else
      chosen.push_back(scenario);
  }
  if (chosen.empty()) throw std::invalid_argument("no such scenario");
  return chosen;
}

void print(const FaultScenario& scenario, const Tally& tally) {
  std::printf("%-32s runs %3d  worst %7.3f s  %s\n%s", scenario.name, tally.runs, tally.worst_s,
              tally.result().c_str(), tally.first_failure.c_str());
  std::fflush(stdout);
}

void write_markdown(const std::string& file, const std::vector<FaultScenario>& scenarios,
                    const std::vector<Tally>& tallies) {
  std::ofstream out(file);
  out << "| scenario | what happens | bound (s) | runs | worst (s) | result |\n"
         "|---|---|---|---|---|---|\n";
  for (size_t i = 0; i < scenarios.size(); i++)
    out << "| `" << scenarios[i].name << "` | " << scenarios[i].what << " | "
        << scenarios[i].bound_s << " | " << tallies[i].runs << " | " << tallies[i].worst_s << " | "
        << tallies[i].result() << " |\n";
}

int run(const Options& options) {
  const std::vector<FaultScenario> scenarios = chosen(options);
  if (options.list) {
    for (const auto& scenario : scenarios) std::printf("%-32s %s\n", scenario.name, scenario.what);
    return 0;
  }
  char folder[] = "/tmp/weft-faults-XXXXXX";
  if (mkdtemp(folder) == nullptr) throw std::runtime_error("mkdtemp");
  std::vector<Tally> tallies(scenarios.size());
  std::mutex printing;
  run_jobs(scenarios.size(), options.jobs, [&](size_t i) {
    tallies[i] = run_scenario(scenarios[i], options.runs, folder);
    const std::lock_guard lock(printing);
    print(scenarios[i], tallies[i]);
  });
  std::filesystem::remove_all(folder);
  if (!options.markdown.empty()) write_markdown(options.markdown, scenarios, tallies);
  const auto failed =
      std::count_if(tallies.begin(), tallies.end(), [](const Tally& t) { return t.failed > 0; });
  std::printf("%zu scenarios, %zd failed\n", scenarios.size(), static_cast<ssize_t>(failed));
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (int exit_code = 0; weft::test::play_scenario(&exit_code)) return exit_code;
  try {
    return weft::test::run(weft::test::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "faults: %s\n", error.what());
    return 2;
  }
}
