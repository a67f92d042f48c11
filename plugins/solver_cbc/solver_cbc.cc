// The solver plugin on COIN-OR CBC. CBC checks the clock only now and then, and keeps global state.
// So it runs in a child process.
#include <Cbc_C_Interface.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/synth/taccl/solver.h"
#include "plugins/solver_cbc/child.h"

namespace {

struct Shared {
  int32_t finished, found, optimal;
  double values[1];  // one per column
};

// CBC takes the matrix by columns.
struct ByColumn {
  std::vector<CoinBigIndex> begin;
  std::vector<int> row;
  std::vector<double> factor;
};

ByColumn by_column(const WeftSolverModel& model) {
  ByColumn result;
  const auto columns = static_cast<size_t>(model.columns);
  const auto terms = static_cast<size_t>(model.row_begin[model.rows]);
  result.begin.assign(columns + 1, 0);
  for (size_t k = 0; k < terms; k++) result.begin[static_cast<size_t>(model.column[k]) + 1]++;
  for (size_t c = 0; c < columns; c++) result.begin[c + 1] += result.begin[c];
  std::vector<CoinBigIndex> next(result.begin.begin(), result.begin.end() - 1);
  result.row.resize(terms);
  result.factor.resize(terms);
  for (int32_t r = 0; r < model.rows; r++)
    for (int32_t k = model.row_begin[r]; k < model.row_begin[r + 1]; k++) {
      const auto at = static_cast<size_t>(next[static_cast<size_t>(model.column[k])]++);
      result.row[at] = r;
      result.factor[at] = model.factor[k];
    }
  return result;
}

void solve_here(const WeftSolverModel& model, double seconds, Shared* shared) {
  const ByColumn matrix = by_column(model);
  Cbc_Model* cbc = Cbc_newModel();
  Cbc_loadProblem(cbc, model.columns, model.rows, matrix.begin.data(), matrix.row.data(),
                  matrix.factor.data(), model.lower, model.upper, model.cost, model.row_lower,
                  model.row_upper);
  for (int32_t c = 0; c < model.columns; c++)
    if (model.integer[c] != 0) Cbc_setInteger(cbc, c);
  if (model.start != nullptr) {
    std::vector<int> columns(static_cast<size_t>(model.columns));
    for (int32_t c = 0; c < model.columns; c++) columns[static_cast<size_t>(c)] = c;
    Cbc_setMIPStartI(cbc, model.columns, columns.data(), model.start);
  }
  Cbc_setParameter(cbc, "logLevel", "0");
  Cbc_setParameter(cbc, "timeMode", "elapsed");
  Cbc_setParameter(cbc, "seconds", std::to_string(seconds).c_str());
  Cbc_setParameter(cbc, "randomCbcSeed", "1");
  Cbc_setParameter(cbc, "ratioGap", "1e-4");
  Cbc_solve(cbc);
  const double* best = Cbc_bestSolution(cbc);
  if (best == nullptr && Cbc_isProvenOptimal(cbc) != 0) best = Cbc_getColSolution(cbc);
  if (best != nullptr) {
    std::copy(best, best + model.columns, shared->values);
    shared->found = 1;
    shared->optimal = Cbc_isProvenOptimal(cbc);
  }
  shared->finished = 1;
}

int32_t solve(const WeftSolverModel* model, double seconds, WeftSolverAnswer* answer) {
  const size_t bytes = sizeof(Shared) + sizeof(double) * static_cast<size_t>(model->columns);
  const auto say = [&](const char* text) {
    std::snprintf(answer->message, sizeof answer->message, "%s", text);
  };
  auto* shared = static_cast<Shared*>(weft::shared_memory(bytes));
  if (shared == nullptr) {
    say("no memory to share with the solver");
    return 1;
  }
  // The child stops a little earlier by itself, so that its best solution is not lost.
  const double own_limit = std::max(0.05, 0.85 * seconds);
  const weft::ChildEnd end =
      weft::run_in_child(seconds, [&] { solve_here(*model, own_limit, shared); });
  int32_t result = 0;
  if (shared->finished != 0) {
    answer->found = shared->found;
    answer->optimal = shared->optimal;
    if (shared->found != 0) std::copy_n(shared->values, model->columns, answer->values);
    say(shared->optimal != 0 ? "optimal" : "stopped at the time limit");
  } else if (end == weft::ChildEnd::kTooLate) {
    say("nothing found within the time limit");
  } else {
    say(end == weft::ChildEnd::kCannotStart ? "cannot start a process for CBC" : "CBC crashed");
    result = 1;
  }
  weft::free_shared(shared, bytes);
  return result;
}

}  // namespace

extern "C" __attribute__((visibility("default")))
const WeftSolver weft_solver_v1 = {kWeftSolverVersion, "cbc", solve};
