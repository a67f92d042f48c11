// The table of plan_regret: a row for every collective and size, and what all of them say.
#pragma once

#include <string>
#include <vector>

#include "perf/regret/entrants.h"
#include "perf/regret/paired.h"

namespace weft::perf {

class Verdict {
 public:
  static void print_head(int ranks, bool processes);
  // `predicted_us`: by the library's model; 0: it says nothing.
  void add_row(const std::string& collective, uint64_t size, const std::vector<Entrant>& entrants,
               double predicted_us);
  // Exit code: 1 where some choice was beyond doubt more than `limit` slower than the best.
  int finish(double limit) const;

 private:
  std::vector<Comparison> regrets_, noise_;
  std::vector<double> errors_;
};

}  // namespace weft::perf
