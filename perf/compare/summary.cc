// Ratios above 1 mean that the library is faster than MPI.
#include "perf/compare/summary.h"

#include <cmath>
#include <cstdio>

#include "perf/common/json_writer.h"
#include "perf/common/sizes.h"

namespace weft::perf {
namespace {

constexpr Contender kOurs[] = {kWeftMalloc, kWeftMemAlloc};
constexpr const char* kNames[kContenders] = {"mpi", "malloc", "memalloc"};

double geometric_mean(const std::vector<Entry>& entries, Contender weft) {
  double logs = 0;
  int count = 0;
  for (const Entry& entry : entries) {
    if (entry.outcome.bytes < kLargeBytes) continue;
    logs += std::log(entry.ratio(weft));
    ++count;
  }
  return count == 0 ? 0 : std::exp(logs / count);
}

void write_extreme(JsonWriter& json, const char* key, const Extreme& extreme) {
  json.begin_object(key);
  json.number("value", extreme.value);
  json.text("row", extreme.row);
  json.end_object();
}

}  // namespace

Summary summarize(const std::vector<Entry>& entries) {
  Summary summary;
  summary.geometric_mean_malloc = geometric_mean(entries, kWeftMalloc);
  summary.geometric_mean_memalloc = geometric_mean(entries, kWeftMemAlloc);
  for (const Entry& entry : entries) {
    summary.wrong += entry.outcome.wrong;
    for (const Contender weft : kOurs) {
      const std::string row =
          entry.collective + " " + describe_size(entry.outcome.bytes) + " " + kNames[weft];
      Extreme& least = summary.least_ratio;
      Extreme& most = summary.most_extra_us;
      const double ratio = entry.ratio(weft);
      const double extra = entry.extra_us(weft);
      if (entry.outcome.bytes >= kLargeBytes && (least.row.empty() || ratio < least.value)) {
        least = {ratio, row};
      }
      if (entry.outcome.bytes <= kSmallBytes && (most.row.empty() || extra > most.value)) {
        most = {extra, row};
      }
    }
  }
  return summary;
}

void print_table_header(int nranks, int repetitions) {
  std::printf("# MPI and weft, %d ranks, medians of %d alternating repetitions\n", nranks,
              repetitions);
  std::printf("# ratio: MPI time / weft time (above 1: weft is faster); extra: weft - MPI\n");
  std::printf("# %-16s %10s  %10s %10s %10s  %8s %8s  %9s %9s  %6s\n", "collective", "size(B)",
              "MPI(us)", "malloc", "MemAlloc", "r.malloc", "r.MemA", "x.malloc", "x.MemA",
              "#wrong");
  std::fflush(stdout);
}

void print_entry(const Entry& entry) {
  const auto& us = entry.outcome.us;
  std::printf("  %-16s %10zu  %10.2f %10.2f %10.2f  %8.2f %8.2f", entry.collective.c_str(),
              entry.outcome.bytes, us[kMpi], us[kWeftMalloc], us[kWeftMemAlloc],
              entry.ratio(kWeftMalloc), entry.ratio(kWeftMemAlloc));
  if (entry.outcome.bytes <= kSmallBytes) {
    std::printf("  %+9.2f %+9.2f", entry.extra_us(kWeftMalloc), entry.extra_us(kWeftMemAlloc));
  } else {
    std::printf("  %9s %9s", "", "");
  }
  std::printf("  %6lld\n", entry.outcome.wrong);
  std::fflush(stdout);
}

void print_summary(const Summary& s) {
  if (!s.least_ratio.row.empty()) {
    std::printf("# geometric mean of MPI/weft at >= 64 KiB: malloc %.3f, MemAlloc %.3f\n",
                s.geometric_mean_malloc, s.geometric_mean_memalloc);
    std::printf("# least MPI/weft at >= 64 KiB: %.3f (%s)\n", s.least_ratio.value,
                s.least_ratio.row.c_str());
  }
  if (!s.most_extra_us.row.empty()) {
    std::printf("# most extra us at <= 4 KiB: %+.2f (%s)\n", s.most_extra_us.value,
                s.most_extra_us.row.c_str());
  }
  std::printf("# wrong values: %lld %s\n", s.wrong, s.wrong == 0 ? "OK" : "FAILED");
}

std::string to_json(const std::vector<Entry>& entries, const Summary& summary, int nranks,
                    int repetitions) {
  JsonWriter json;
  json.begin_object();
  json.number("ranks", nranks);
  json.number("repetitions", repetitions);
  json.begin_array("rows");
  for (const Entry& entry : entries) {
    json.begin_object();
    json.text("collective", entry.collective);
    json.number("size", entry.outcome.bytes);
    for (size_t c = 0; c < kContenders; ++c) {
      json.number(std::string(kNames[c]) + "_us", entry.outcome.us[c]);
    }
    json.number("ratio_malloc", entry.ratio(kWeftMalloc));
    json.number("ratio_memalloc", entry.ratio(kWeftMemAlloc));
    json.number("wrong", entry.outcome.wrong);
    json.end_object();
  }
  json.end_array();
  json.number("geometric_mean_malloc", summary.geometric_mean_malloc);
  json.number("geometric_mean_memalloc", summary.geometric_mean_memalloc);
  write_extreme(json, "least_ratio", summary.least_ratio);
  write_extreme(json, "most_extra_us", summary.most_extra_us);
  json.number("wrong", summary.wrong);
  json.end_object();
  return json.str();
}

}  // namespace weft::perf
