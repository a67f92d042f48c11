// Faulty solver plugins. The build chooses the fault.
#include <algorithm>
#include <cstdio>

#include "algorithms/synth/taccl/solver.h"

namespace {

int32_t solve(const WeftSolverModel* model, double, WeftSolverAnswer* answer) {
#if defined(WEFT_SOLVER_IS_failing)
  std::snprintf(answer->message, sizeof answer->message, "out of\ncoffee");
  (void)model;
  return 7;
#elif defined(WEFT_SOLVER_IS_lying)
  std::fill_n(answer->values, model->columns, 0.0);  // violates the rows that demand receiving
  answer->found = answer->optimal = 1;
  return 0;
#elif defined(WEFT_SOLVER_IS_worse)
  // Satisfies all rows that only ask for more of the first column.
  std::copy_n(model->start, model->columns, answer->values);
  answer->values[0] += 1;
  answer->found = 1;
  return 0;
#else
  (void)model;
  answer->found = 0;
  return 0;
#endif
}

#ifdef WEFT_SOLVER_IS_old
constexpr uint32_t kVersion = 0;
#else
constexpr uint32_t kVersion = kWeftSolverVersion;
#endif

}  // namespace

#ifdef WEFT_SOLVER_IS_missing  // a shared library that is not a plugin
extern "C" __attribute__((visibility("default"))) const int weft_no_solver = 1;
const auto unused = &solve;
#else
extern "C" __attribute__((visibility("default")))
const WeftSolver weft_solver_v1 = {kVersion, "odd", solve};
#endif
