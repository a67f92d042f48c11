// The timeline that people open in Perfetto.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "algorithms/generators/generators.h"
#include "src/simulator/simulation_trace.h"
#include "tests/simulator/machines.h"

namespace weft::test {
namespace {

TEST(Trace, IsJsonWithANamedRowForEveryLaneAndEveryUsedLink) {
  const Machine m = switched({.gpus = 4, .switch_us = 0.3});
  const Schedule schedule = kDirect.make({CollectiveKind::kAllReduce, 4, 0}, false);
  SimulationOptions options;
  options.record = true;
  const Simulation simulation = simulate(m, schedule, 1e6, options);
  std::stringstream text;
  write_trace(m, schedule, simulation, text);
  const nlohmann::json trace = nlohmann::json::parse(text.str());

  std::map<std::pair<int, int>, std::string> rows;
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, double> end;
  size_t steps = 0, transfers = 0, critical = 0;
  for (const auto& event : trace.at("traceEvents")) {
    const int process = event.at("pid"), row = event.at("tid");
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") rows[{process, row}] = event.at("args").at("name");
      if (event.at("name") == "process_name") processes[process] = event.at("args").at("name");
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    ASSERT_TRUE(rows.count({process, row})) << "a span in a row without a name";
    // Spans of a row do not overlap, so that none hides another.
    const double begin = event.at("ts"), duration = event.at("dur");
    EXPECT_GE(duration, 0);
    EXPECT_LE(begin + duration, simulation.time_us + 1e-5);
    EXPECT_GE(begin, end[std::make_pair(process, row)] - 1e-5);
    end[std::make_pair(process, row)] = begin + duration;
    const bool is_step = event.at("args").contains("critical");
    (is_step ? steps : transfers)++;
    if (is_step && event.at("args").at("critical")) critical++;
  }
  EXPECT_EQ(processes.at(0), "rank 0 (h0g0)");
  EXPECT_EQ(processes.at(4), "links");
  EXPECT_EQ((rows.at({3, 2})), "lane 2");
  std::set<std::string> names;
  for (const auto& [at, name] : rows)
    if (at.first == 4) names.insert(name);
  EXPECT_EQ(names,
            (std::set<std::string>{"h0g0->h0nvs", "h0nvs->h0g0", "h0g1->h0nvs", "h0nvs->h0g1",
                                   "h0g2->h0nvs", "h0nvs->h0g2", "h0g3->h0nvs", "h0nvs->h0g3"}));
  EXPECT_EQ(steps, simulation.steps.size());
  EXPECT_EQ(transfers, simulation.transfers.size());
  EXPECT_EQ(critical, simulation.critical.size());
}

TEST(Trace, SurvivesNamesWithQuotesAndControlCharacters) {
  Machine m = line(2, 10, 0);
  m.nodes[0].id = "a\"b\\c\nd";
  const Schedule schedule = kSendRecv.make({CollectiveKind::kSendRecv, 2, 0}, false);
  SimulationOptions options;
  options.record = true;
  std::stringstream text;
  write_trace(m, schedule, simulate(m, schedule, 1e3, options), text);
  EXPECT_NE(nlohmann::json::parse(text.str()).dump().find("a\\\"b\\\\c\\nd->g1"),
            std::string::npos);
}

TEST(CriticalPath, JoinsTheSlicesOfAStep) {
  const Machine m = line(2, 10, 1);
  const Schedule schedule = kSendRecv.make({CollectiveKind::kSendRecv, 2, 0}, false);
  SimulationOptions options;
  options.record = true;
  options.slice_bytes = 1e5;
  const auto parts = critical_parts(schedule, simulate(m, schedule, 1e6, options));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].spans, 10);
  EXPECT_EQ(parts[0].first.rank, 0);
  EXPECT_NEAR(parts[0].end_us, 100, 1e-9);
  EXPECT_EQ(parts[1].spans, 1);
  EXPECT_EQ(parts[1].first.rank, 1);
  EXPECT_NEAR(parts[1].end_us, 101, 1e-9);
}

}  // namespace
}  // namespace weft::test
