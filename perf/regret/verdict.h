// The table of plan_regret: a row for every collective and size, and a summary.
#pragma once

#include <string>
#include <vector>

#include "perf/common/paired.h"
#include "perf/regret/entrants.h"

namespace weft::perf {

class Verdict {
 public:
  static void print_head(int ranks, bool processes);
  // `predicted_us` comes from the library's model. 0 means that it predicts nothing.
  void add_row(const std::string& collective, uint64_t size, const std::vector<Entrant>& entrants,
               double predicted_us);
  // Returns exit code 1 if some choice was significantly more than `limit` slower than the best.
  int finish(double limit) const;

 private:
  std::vector<Comparison> regrets_, noise_;
  std::vector<double> errors_;
};

}  // namespace weft::perf
