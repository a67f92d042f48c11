// The table on stdout, in the layout of nccl-tests, and the verdict.
#pragma once

#include <string>
#include <vector>

#include "perf/common/options.h"
#include "perf/common/row.h"

namespace weft::perf {

// One rank in "# Using devices".
struct DeviceLine {
  int rank;
  int group;
  int pid;
  std::string host;
  int device;
};

struct Totals {
  long long wrong = 0;
  double bus_gbps_sum = 0;
  int columns = 0;
  void add(const Row& row);
  double average_bus_gbps() const { return columns == 0 ? 0 : bus_gbps_sum / columns; }
};

// The average bus bandwidth that NCCL_TESTS_MIN_BW asks for (0: none). Nine tenths of it pass.
struct Verdict {
  bool data_ok;
  bool bandwidth_asked;
  bool bandwidth_ok;
  bool ok() const { return data_ok && bandwidth_ok; }
};
Verdict judge(const Totals& totals);

void print_preamble(const Options& options, int library_version);
void print_devices(const std::vector<DeviceLine>& devices);
void print_header(const Options& options);
void print_row(const Row& row);
void print_footer(const Totals& totals);

// "2025-01-31 23:59:59", local time.
std::string timestamp();

}  // namespace weft::perf
