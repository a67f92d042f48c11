// Solvers of linear models are plugins, so that Weft depends on none: a shared object that exports
// a WeftSolver called weft_solver_v1. plugins/solver_cbc is Weft's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/synth/taccl/linear_model.h"

// The plugin's side, in plain C layouts. Arrays belong to the caller and live until solve()
// returns.
struct WeftSolverModel {
  int32_t columns, rows;
  const double *cost, *lower, *upper;  // per column; infinity: no bound
  const uint8_t* integer;              // per column, 1: integer
  const int32_t* row_begin;            // rows + 1 entries
  const int32_t* column;
  const double* factor;
  const double *row_lower, *row_upper;
  const double* start;  // a solution to start from, or null
};

struct WeftSolverAnswer {
  double* values;     // per column; filled in if a solution is found
  int32_t found;      // 1: values hold a solution
  int32_t optimal;    // 1: no solution is better
  char message[256];  // the reason of a failure, or what was done
};

struct WeftSolver {
  uint32_t version;  // kWeftSolverVersion
  const char* name;
  // Minimises within `seconds`. Returns 0, or another value if it failed; then the message says
  // why. Any thread may call it.
  int32_t (*solve)(const WeftSolverModel* model, double seconds, WeftSolverAnswer* answer);
};

inline constexpr uint32_t kWeftSolverVersion = 1;
inline constexpr const char* kWeftSolverSymbol = "weft_solver_v1";

namespace weft {

// A loaded plugin. Any thread may solve with it.
class Solver {
 public:
  // WEFT_SOLVER_PLUGIN if set ("none": no solver). Otherwise libweft-solver-cbc.so beside this
  // code, in ../lib of it, or where the loader searches. Null if there is none; `why_not` has a
  // line.
  static std::shared_ptr<const Solver> find(std::string& why_not);
  // Throws Error with one line that says what is wrong with the file.
  static std::shared_ptr<const Solver> load(const std::string& path);
  ~Solver();
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  std::string name() const { return plugin_->name; }

  struct Solution {
    std::vector<double> values;
    double objective = 0;
    bool improved = false;  // better than the start
    bool optimal = false;
    std::string note;  // why the start was kept, if it was
    double seconds = 0;
  };
  // Never worse than `start`, which must satisfy the model. The plugin's answer is checked. If it
  // violates a row, it is dropped and the note says so.
  Solution improve(const LinearModel& model, const std::vector<double>& start,
                   double seconds) const;

 private:
  Solver(void* handle, const WeftSolver* plugin) : handle_(handle), plugin_(plugin) {}
  void* handle_;
  const WeftSolver* plugin_;
};

}  // namespace weft
