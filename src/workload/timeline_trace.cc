// write_trace() of timeline_views.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "src/simulator/simulator.h"
#include "src/workload/timeline_views.h"

namespace weft::workload {
namespace {

constexpr size_t kMostLinks = 32;

class EventWriter {
 public:
  explicit EventWriter(std::ostream& out) : out_(out) { out_ << "{\"traceEvents\":["; }
  ~EventWriter() { out_ << "\n]}\n"; }
  void name(const char* what, size_t process, size_t row, const std::string& text) {
    put(nlohmann::ordered_json{
        {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", row}, {"args", {{"name", text}}}});
  }
  void span(const std::string& text, size_t process, size_t row, double begin, double end,
            const nlohmann::ordered_json& about) {
    put(nlohmann::ordered_json{{"ph", "X"},
                               {"name", text},
                               {"pid", process},
                               {"tid", row},
                               {"ts", begin},
                               {"dur", end - begin},
                               {"args", about}});
  }

 private:
  void put(const nlohmann::ordered_json& event) {
    out_ << separator_ << event.dump();
    separator_ = ",\n";
  }
  std::ostream& out_;
  const char* separator_ = "\n";
};

nlohmann::ordered_json about(const Graph& graph, const Op& op) {
  nlohmann::ordered_json facts = {{"phase", name_of(op.phase)}};
  if (op.layer >= 0) facts["layer"] = op.layer;
  if (op.microbatch >= 0) facts["microbatch"] = op.microbatch;
  if (op.collective) {
    facts["kind"] = name(*op.collective);
    facts["bytes"] = op.bytes;
    facts["group"] = graph.groups[static_cast<size_t>(op.group)].name;
  }
  return facts;
}

}  // namespace

void write_trace(const Machine& machine, const Graph& graph, const Timeline& timeline,
                 CommCosts& costs, std::ostream& out) {
  EventWriter writer(out);
  const size_t actors = timeline.actors.ranks.size();
  std::map<std::string, size_t> rows;
  for (const Op& op : graph.ops) rows.emplace(op.stream, rows.size());
  for (size_t a = 0; a < actors; a++) {
    const auto& ranks = timeline.actors.ranks[a];
    writer.name("process_name", a, 0,
                ranks.size() == 1
                    ? fmt::format("rank {}", ranks.front())
                    : fmt::format("rank {} and {} like it", ranks.front(), ranks.size() - 1));
    for (const auto& [stream, row] : rows) writer.name("thread_name", a, row, stream);
  }
  std::set<int> shown;
  for (size_t i = 0; i < timeline.link_busy_us.size() && i < kMostLinks; i++)
    shown.insert(timeline.link_busy_us[i].first);
  writer.name("process_name", actors, 0, "links, the busiest");
  for (const int link : shown)
    writer.name("thread_name", actors, static_cast<size_t>(link), link_name(machine, link));
  for (const Span& span : timeline.spans) {
    const Op& op = graph.ops[static_cast<size_t>(span.op)];
    const size_t row = rows[op.stream];
    if (!op.collective) {
      writer.span(op.id, static_cast<size_t>(span.actor), row, span.begin_us, span.end_us,
                  about(graph, op));
      continue;
    }
    for (const int actor : timeline.actors.of(op))
      writer.span(op.id, static_cast<size_t>(actor), row, span.begin_us, span.end_us,
                  about(graph, op));
    const auto& instances = graph.groups[static_cast<size_t>(op.group)].instances;
    for (const LinkLoad& load : costs.cost(*op.collective, op.bytes, instances).loads)
      if (shown.count(load.link) > 0)
        writer.span(op.id, actors, static_cast<size_t>(load.link), span.begin_us, span.end_us,
                    {{"share", load.share}});
  }
}

}  // namespace weft::workload
