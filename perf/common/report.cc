// Prints rows with the fields where scripts written for nccl-tests expect them.
#include "perf/common/report.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "perf/common/collective.h"
#include "perf/common/device.h"
#include "weft.h"

namespace weft::perf {
namespace {

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string format_time(double us) {
  return format(us >= 10000 ? "%7.0f" : us >= 100 ? "%7.1f" : "%7.2f", us);
}

void print_columns(const Measurement& m) {
  std::printf("  %7s  %6s  %6s", format_time(m.us).c_str(),
              format("%6.2f", m.algorithm_gbps).c_str(), format("%6.2f", m.bus_gbps).c_str());
  if (m.wrong) {
    std::printf("  %6g", static_cast<double>(*m.wrong));
  } else {
    std::printf("  %6s", "N/A");
  }
}

double asked_bandwidth() {
  const char* text = std::getenv("NCCL_TESTS_MIN_BW");
  return text == nullptr ? 0 : std::atof(text);
}

}  // namespace

void Totals::add(const Row& row) {
  for (const Measurement* m : {&row.out_of_place, &row.in_place}) {
    wrong += m->wrong.value_or(0);
    bus_gbps_sum += m->bus_gbps;
    ++columns;
  }
}

Verdict judge(const Totals& totals) {
  constexpr double kSlack = 0.9;
  const double asked = asked_bandwidth();
  return {totals.wrong == 0, asked > 0, totals.average_bus_gbps() >= kSlack * asked};
}

void print_preamble(const Options& o, int library_version) {
  std::printf("# nccl-tests version weft-%s nccl-headers=%d nccl-library=%d\n", WEFT_VERSION_STRING,
              NCCL_VERSION_CODE, library_version);
  std::printf("# Collective test starting: %s\n", kCollective.program);
  const bool factor = o.step_factor > 1;
  std::printf(
      "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d "
      "agg iters: %d validate: %d graph: 0 unalign: %d\n#\n",
      o.threads, o.ranks_per_thread, o.min_bytes, o.max_bytes,
      factor ? static_cast<size_t>(o.step_factor) : o.step_bytes, factor ? "factor" : "bytes",
      o.warmup, o.iterations, o.aggregated, o.checks, o.unalign);
}

void print_devices(const std::vector<DeviceLine>& devices) {
  std::printf("# Using devices\n");
  for (const DeviceLine& d : devices) {
    std::printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [0000:00:00] %s\n", d.rank,
                d.group, d.pid, d.host.c_str(), d.device, device::name());
  }
}

void print_header(const Options& options) {
  const char* clock = options.report_cpu_time ? "cputime" : "time";
  std::printf("#\n# %10s  %12s  %8s  %6s  %6s  %31s  %31s\n", "", "", "", "", "",
              "out-of-place          ", "in-place            ");
  std::printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
  for (int i = 0; i < 2; ++i)
    std::printf("  %7s  %6s  %6s  %6s", clock, "algbw", "busbw", "#wrong");
  if (options.per_iteration) {
    std::printf("  %8s  %8s  %8s  %8s", "i_min", "i_max", "i_p99", "i_cv%");
  }
  if (options.report_timestamps) std::printf("  %19s", "timestamp");
  std::printf("\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
  for (int i = 0; i < 2; ++i) std::printf("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
  if (options.per_iteration) std::printf("  %8s  %8s  %8s  %8s", "(us)", "(us)", "(us)", "");
  std::printf("\n");
  std::fflush(stdout);
}

void print_row(const Row& row) {
  std::printf("%12zu  %12zu  %8s  %6s  %6s", row.bytes, row.count, data_type(row.type).name,
              op_name(row.op), std::to_string(row.root).c_str());
  print_columns(row.out_of_place);
  print_columns(row.in_place);
  if (row.iterations) {
    const IterationStatistics& i = *row.iterations;
    std::printf("  %8.2f  %8.2f  %8.2f  %8.1f", i.min, i.max, i.p99, i.cv);
  }
  if (!row.timestamp.empty()) std::printf("  %s", row.timestamp.c_str());
  std::printf("\n");
  std::fflush(stdout);
}

void print_footer(const Totals& totals) {
  const Verdict verdict = judge(totals);
  std::printf("# Out of bounds values : %lld %s\n", totals.wrong,
              verdict.data_ok ? "OK" : "FAILED");
  std::printf("# Avg bus bandwidth    : %g %s\n#\n", totals.average_bus_gbps(),
              !verdict.bandwidth_asked ? ""
              : verdict.bandwidth_ok   ? "OK"
                                       : "FAILED");
  std::printf("# Collective test concluded: %s\n", kCollective.program);
  const char* last = ncclGetLastError(nullptr);
  if (last != nullptr && *last != '\0') std::printf("# %s\n", last);
  std::fflush(stdout);
}

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

}  // namespace weft::perf
