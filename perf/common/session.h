// A whole run of a perf program: from the flags to the verdict.
#pragma once

#include <memory>
#include <vector>

#include "perf/common/bench.h"
#include "perf/common/json_report.h"
#include "perf/common/report.h"
#include "perf/common/watch.h"

namespace weft::perf {

class Session {
 public:
  // Throws UsageError, on all processes, if this machine or collective cannot do what is asked.
  Session(Process& process, const Options& options, int argc, char** argv);

  // Measures all rows. Returns the exit code.
  int run();

 private:
  void work(int thread);
  void run_workload(Bench& bench, int thread, ncclDataType_t type, Op op);
  void report(Row row);
  std::vector<DeviceLine> list_devices();

  Process& process_;
  const Options& options_;
  const size_t max_bytes_;
  Team team_;
  std::unique_ptr<Ranks> ranks_;
  Watch watch_;
  std::unique_ptr<JsonReport> json_;
  Totals totals_;
  Workload workload_{};  // thread 0 writes it between barriers, all threads read it
};

}  // namespace weft::perf
