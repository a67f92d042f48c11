// Measures and checks one row: the work of one thread for its ranks.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "perf/common/collective.h"
#include "perf/common/options.h"
#include "perf/common/patterns.h"
#include "perf/common/ranks.h"
#include "perf/common/row.h"
#include "perf/common/team.h"

namespace weft::perf {

// Shared by the rows of one (type, op).
struct Workload {
  ncclDataType_t type;
  Op op;
  std::map<int, Patterns> patterns;  // by number of ranks in a group
};

// One per thread. All threads of all processes call it with the same arguments in step.
class Bench {
 public:
  Bench(const Options& options, Team& team, int thread, std::span<LocalRank> ranks,
        size_t max_bytes);

  // Rows of one workload come between these two calls. prepare() makes the operators of mulsum.
  void prepare(const Workload& workload);
  void finish();

  Row measure(size_t bytes, int root);

 private:
  struct Buffers {
    std::byte* send;
    std::byte* recv;
  };

  Measurement measure_columns(bool in_place, Row& row);
  void issue(bool in_place, size_t iteration);
  double time_iterations(bool in_place, std::vector<double>* iteration_us);
  double now() const;
  void write_input(bool in_place);
  long long count_wrong_values(bool in_place) const;
  void throw_async_errors() const;
  Buffers buffers(size_t local, bool in_place, size_t iteration) const;

  const Options& options_;
  Team& team_;
  const int thread_;
  const std::span<LocalRank> ranks_;
  const size_t max_bytes_;
  const Workload* workload_ = nullptr;
  std::vector<ncclRedOp_t> ops_;  // per local rank
  std::vector<Shape> shapes_;     // per local rank, of the current row
  size_t type_size_ = 0;
  int root_ = 0;
  int phases_ = 1;
};

}  // namespace weft::perf
