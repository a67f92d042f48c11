// Solver plugins: the library finds them, refuses bad ones and checks every answer.
#include "algorithms/synth/taccl/solver.h"

#include <gtest/gtest.h>

#include <chrono>

#include "src/base/error.h"
#include "tests/algorithms/synth/cbc.h"
#include "tests/support/cpu_time.h"
#include "tests/support/environment.h"
#include "tests/support/require.h"

namespace weft::test {
namespace {

std::string plugin(const std::string& kind) {
  return std::string(WEFT_TEST_PLUGINS) + "/libweft_" + kind + "_solver.so";
}

// Minimise x0 where x0 >= 3 b1 + 2 b2 and b1 + b2 = 1: the best is 2.
LinearModel choice() {
  LinearModel model;
  const int32_t time = model.add_column(1, 0, LinearModel::kInfinity);
  const int32_t a = model.add_binary(), b = model.add_binary();
  model.at_least({{time, 1}, {a, -3}, {b, -2}}, 0);
  model.add_row({{a, 1}, {b, 1}}, 1, 1);
  return model;
}
const std::vector<double> kStart{3, 1, 0};

TEST(LinearModels, SayWhatASolutionBreaks) {
  const LinearModel model = choice();
  EXPECT_EQ(model.broken(kStart), "");
  EXPECT_EQ(model.broken({2, 1, 0}), "row 0 is -1, outside 0 to inf");
  EXPECT_EQ(model.broken({3, 0.5, 0.5}), "column 1 is 0.5, not a whole number");
  EXPECT_EQ(model.broken({3, 1, 1}), "row 0 is -2, outside 0 to inf");
  EXPECT_EQ(model.broken({3, 2, 0}), "column 1 is 2, outside 0 to 1");
  EXPECT_EQ(model.broken({3, 1}), "2 values for 3 columns");
  EXPECT_EQ(model.objective(kStart), 3);
}

TEST(LinearModels, AddUpTermsOfOneColumn) {
  LinearModel model;
  const int32_t x = model.add_column(1, 0, 10);
  model.at_least({{x, 1}, {x, 2}}, 6);
  EXPECT_EQ(model.column.size(), 1u);
  EXPECT_EQ(model.broken({2}), "");
  EXPECT_NE(model.broken({1.9}), "");
}

TEST(SolverPlugins, ThatAreMissingOrBrokenSayWhyInALine) {
  const auto why = [](const std::string& path) {
    const ScopedEnvironment environment{{"WEFT_SOLVER_PLUGIN", path}};
    std::string reason;
    EXPECT_EQ(Solver::find(reason), nullptr);
    EXPECT_EQ(reason.find('\n'), std::string::npos);
    return reason;
  };
  EXPECT_EQ(why("none"), "no solver (WEFT_SOLVER_PLUGIN=none)");
  EXPECT_NE(why("/no/such/file.so").find("cannot load /no/such/file.so"), std::string::npos);
  EXPECT_NE(why("/etc/passwd").find("cannot load /etc/passwd"), std::string::npos);
  EXPECT_EQ(why(plugin("old")),
            "no solver: " + plugin("old") + " is no solver plugin: it has version 0, wanted is 1");
  EXPECT_EQ(why(plugin("missing")), "no solver: " + plugin("missing") +
                                        " is no solver plugin: it has no symbol weft_solver_v1");
}

TEST(SolverPlugins, ThatFailLieOrDoWorseLeaveTheStart) {
  for (const auto& [kind, note] :
       {std::pair("failing", "solver odd failed (out of coffee)"),
        std::pair("lying", "solver odd gave no solution of its model: row 1 is 0, outside 1 to 1"),
        std::pair("worse", "")}) {
    const auto solution = Solver::load(plugin(kind))->improve(choice(), kStart, 1);
    EXPECT_EQ(solution.values, kStart) << kind;
    EXPECT_FALSE(solution.improved) << kind;
    EXPECT_EQ(solution.note, note) << kind;
  }
}

TEST(SolverPlugins, AreNotAskedToStartFromNonsense) {
  EXPECT_THROW(Solver::load(plugin("worse"))->improve(choice(), {0, 0, 0}, 1), Error);
}

#if WEFT_HAVE_CBC
TEST(Cbc, FindsTheOptimumAndSaysSo) {
  const auto solution = cbc()->improve(choice(), kStart, 10);
  EXPECT_TRUE(solution.improved) << solution.note;
  EXPECT_TRUE(solution.optimal) << solution.note;
  EXPECT_NEAR(solution.objective, 2, 1e-6);
}

TEST(Cbc, IsFoundBesideTheProgramWithoutBeingNamed) {
  const ScopedEnvironment environment{{"WEFT_SOLVER_PLUGIN", std::nullopt}};
  std::string why;
  ASSERT_NE(Solver::find(why), nullptr) << why;
  EXPECT_EQ(Solver::find(why)->name(), "cbc");
}

TEST(Cbc, StopsInTimeHoweverHardTheProblem) {
  // Splits 60 numbers into two halves of nearly equal sum. Branching does not end within the limit.
  LinearModel model;
  const int32_t excess = model.add_column(1, 0, LinearModel::kInfinity);
  std::vector<LinearModel::Term> sum{{excess, 1}}, other{{excess, 1}};
  std::vector<double> start{0};
  double total = 0, half = 0;
  for (int i = 0; i < 60; i++) {
    const double value = 1000 + (i * 7919 % 9973) + 0.1 * (i * 104729 % 9);
    const int32_t taken = model.add_binary();
    sum.push_back({taken, 2 * value});
    other.push_back({taken, -2 * value});
    start.push_back(i % 2);
    total += value;
    half += i % 2 * 2 * value;
  }
  model.at_least(sum, total);
  model.at_least(other, -total);
  start[0] = std::abs(half - total);
  double least = 1e9;
  for (int i = 0; i < 5 && least >= 1.5; i++) {  // others may load the machine
    const auto began = std::chrono::steady_clock::now();
    const auto solution = cbc()->improve(model, start, 1);
    least = std::min(
        least, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    EXPECT_LE(solution.objective, model.objective(start));
    EXPECT_EQ(model.broken(solution.values, 1e-5), "");
  }
  EXPECT_TRUE(in_time(least, 1.5)) << least;
}
#endif

}  // namespace
}  // namespace weft::test
