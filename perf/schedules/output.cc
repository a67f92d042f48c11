// See output.h.
#include "perf/schedules/output.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdio>

#include "perf/common/provenance.h"

namespace weft::perf::schedules {

Output::Output(bool json, int blocks, double copy_gbps)
    : json_(json),
      blocks_(blocks),
      copy_gbps_(copy_gbps),
      date_(today()),
      machine_(gpu()),
      driver_(driver()) {
  if (json_) return;
  fmt::print("# {}, D2D copy {:.1f} GB/s (read+write)\n", machine_, copy_gbps_);
  if (blocks_ > 0) fmt::print("# at most {} thread blocks per rank\n", blocks_);
  fmt::print(
      "{:32} {:14} {:5} {:>5} {:>5} {:>6} {:>5} {:>10} {:>11} {:>11} {:>12} {:>9} {:>6} "
      "{:>6} {:>6}\n",
      "schedule", "collective", "place", "ranks", "lanes", "steps", "chain", "size(B)",
      "stream(us)", "graph(us)", "bytes", "GB/s", "/copy", "msgs", "wrong");
}

void Output::begin(const ImportedSchedule& schedule, const std::string& name,
                   const Figures& figures) {
  schedule_ = &schedule;
  name_ = name;
  figures_ = figures;
}

double Output::gbps(uint64_t chunks, const Times& times) const {
  const double chunk_bytes =
      static_cast<double>(times.bytes) / schedule_->collective.array_blocks() / schedule_->chunks;
  return static_cast<double>(chunks) * chunk_bytes / times.best_us() / 1e3;
}

void Output::measured(uint64_t asked, const Times& times) {
  const double moved = gbps(figures_.moved_chunks, times) / copy_gbps_,
               messages = gbps(figures_.message_chunks, times) / copy_gbps_;
  if (json_) {
    const std::string cell = short_size(asked);
    row(cell + "/stream_us", times.stream_us, "us", "lower");
    row(cell + "/graph_us", times.graph_us, "us", "lower");
    row(cell + "/copy_fraction", moved, "of the copy bandwidth", "higher");
    row(cell + "/message_fraction", messages, "of the copy bandwidth", "higher");
    row(cell + "/wrong", static_cast<double>(times.wrong), "elements", "lower");
    return;
  }
  fmt::print(
      "{:32} {:14} {:5} {:5} {:5} {:6} {:5} {:10} {:11.1f} {:11.1f} {:12.0f} {:9.1f} "
      "{:6.3f} {:6.3f} {:6}\n",
      name_, weft::name(schedule_->collective.kind),
      schedule_->out_of_place == nullptr ? "in" : "out", schedule_->collective.nranks,
      figures_.lanes, figures_.steps, figures_.chain, times.bytes, times.stream_us, times.graph_us,
      moved * copy_gbps_ * times.best_us() * 1e3, moved * copy_gbps_, moved, messages, times.wrong);
  std::fflush(stdout);
}

void Output::step_overhead(double us) {
  const double step = us / static_cast<double>(figures_.chain);
  if (json_) return row("step_us", step, "us", "lower");
  fmt::print("# {}: {:.2f} us a step ({:.1f} us, {} steps on the longest chain)\n", name_, step, us,
             figures_.chain);
  std::fflush(stdout);
}

void Output::row(const std::string& what, double value, const char* unit,
                 const char* better) const {
  std::string label;
  for (const char c : name_)
    label += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' ? c : '-';
  if (blocks_ > 0) label += fmt::format("+{}blocks", blocks_);
  fmt::print("{{\"id\": \"schedule_perf/weft/{}/{}/{}/{}\", \"value\": {:.4f}, \"unit\": \"{}\", ",
             schedule_->collective.nranks, weft::name(schedule_->collective.kind), label, what,
             value, unit);
  fmt::print("\"better\": \"{}\", \"command\": \"schedule_perf {}{}\", \"date\": \"{}\", ", better,
             label, blocks_ > 0 ? fmt::format(" --blocks {}", blocks_) : "", date_);
  fmt::print("\"machine\": \"{}\"", machine_);
  if (!driver_.empty()) fmt::print(", \"driver\": \"{}\"", driver_);
  fmt::print("}}\n");
  std::fflush(stdout);
}

}  // namespace weft::perf::schedules
