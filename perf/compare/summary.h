// The table of mpi_compare and its four summary numbers.
#pragma once

#include <string>
#include <vector>

#include "perf/compare/arena.h"

namespace weft::perf {

struct Entry {
  std::string collective;
  Outcome outcome;
  double ratio(Contender weft) const { return outcome.us[kMpi] / outcome.us[weft]; }
  double extra_us(Contender weft) const { return outcome.us[weft] - outcome.us[kMpi]; }
};

inline constexpr size_t kLargeBytes = 64 << 10;  // bandwidth counts from here on
inline constexpr size_t kSmallBytes = 4 << 10;   // latency counts up to here

struct Extreme {
  double value = 0;
  std::string row;  // "all_reduce 64 KiB malloc"; empty: no such row
};

struct Summary {
  double geometric_mean_malloc = 0;  // of MPI/weft at kLargeBytes and above
  double geometric_mean_memalloc = 0;
  Extreme least_ratio;    // at kLargeBytes and above, either memory
  Extreme most_extra_us;  // at kSmallBytes and below, either memory
  long long wrong = 0;
};

Summary summarize(const std::vector<Entry>& entries);

void print_table_header(int nranks, int repetitions);
void print_entry(const Entry& entry);
void print_summary(const Summary& summary);
std::string to_json(const std::vector<Entry>& entries, const Summary& summary, int nranks,
                    int repetitions);

}  // namespace weft::perf
