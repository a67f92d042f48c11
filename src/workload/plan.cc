// See plan.h.
#include "src/workload/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/base/error.h"
#include "src/workload/check.h"
#include "src/workload/json_reader.h"

namespace weft::workload {
namespace {

std::string kind_text(CollectiveKind kind) {
  return kind == CollectiveKind::kSendRecv ? "send_recv" : std::string(name(kind));
}

PlannedCall read_call(const JsonReader& reader, const Plan& plan, int number) {
  if (!reader.object.is_object()) fail(ncclInvalidArgument, "{}: not an object", reader.place);
  PlannedCall call;
  call.op = reader.text("op");
  call.stream = reader.text("stream");
  call.begin_us = reader.number("begin_us", 0);
  call.end_us = reader.number("end_us", 0);
  if (const auto* after = reader.find("after"))
    for (const auto& each : *after) {
      if (!each.is_number_integer() || each.get<int>() < 0 || each.get<int>() >= number)
        reader.refuse("after", "numbers of earlier calls");
      call.after.push_back(each.get<int>());
    }
  if (reader.find("kind") == nullptr) {
    call.us = reader.number("us");
    if (const auto* ranks = reader.find("ranks"))
      call.ranks = reader.ranks(*ranks, plan.nranks, "'ranks'");
    return call;
  }
  const std::string kind = reader.text("kind");
  call.kind = kind == "send_recv" ? CollectiveKind::kSendRecv : parse_collective(kind);
  if (!call.kind) reader.refuse("kind", "a collective");
  call.communicator = reader.integer("communicator");
  if (static_cast<size_t>(call.communicator) >= plan.communicators.size())
    reader.refuse("communicator", "a number of the list");
  call.call = reader.integer("call", -1);
  call.part = reader.integer("part", 0);
  call.parts = reader.integer("parts", 1);
  call.root = reader.integer("root", 0);
  call.offset = reader.number("offset", 0);
  call.bytes = reader.number("bytes");
  return call;
}

}  // namespace

Plan plan_of(const Graph& given, const Timeline& timeline) {
  Plan plan;
  plan.name = given.name;
  plan.nranks = given.nranks;
  plan.predicted_us = timeline.us;
  plan.predicted_exposed_us = timeline.exposed_us;
  // A rank issues nothing before what it waits for.
  const std::vector<int> order = order_of(given, given.name);
  std::vector<int> number(given.ops.size());
  for (size_t k = 0; k < order.size(); k++)
    number[static_cast<size_t>(order[k])] = static_cast<int>(k);
  std::map<std::pair<int, std::string>, int> communicators;
  std::map<int, std::pair<int, double>> open;  // per communicator: the call, and where it stands
  int calls = 0;
  for (const int each : order) {
    const Op& op = given.ops[static_cast<size_t>(each)];
    PlannedCall& call = plan.calls.emplace_back();
    call.op = op.id;
    call.stream = op.stream;
    for (const int before : op.after) call.after.push_back(number[static_cast<size_t>(before)]);
    std::sort(call.after.begin(), call.after.end());
    if (!op.collective) {
      call.us = op.us;
      if (op.place != 0) call.ranks = given.places[static_cast<size_t>(op.place)];
      continue;
    }
    const Group& group = given.groups[static_cast<size_t>(op.group)];
    const auto [it, fresh] = communicators.emplace(std::pair{op.group, op.stream},
                                                   static_cast<int>(plan.communicators.size()));
    if (fresh)
      plan.communicators.push_back({group.name + "@" + op.stream, op.priority, group.instances});
    call.kind = op.collective;
    call.communicator = it->second;
    call.bytes = op.bytes;
    call.part = op.part;
    call.parts = op.parts;
    call.root = op.root;
    auto& [of, at] = open[call.communicator];
    if (op.part == 0) {
      of = calls++;
      at = 0;
    }
    call.call = of;
    call.offset = at;
    at += op.bytes;
  }
  for (const Span& span : timeline.spans) {
    PlannedCall& call = plan.calls[static_cast<size_t>(number[static_cast<size_t>(span.op)])];
    if (call.end_us < span.end_us) {
      call.begin_us = span.begin_us;
      call.end_us = span.end_us;
    }
  }
  return plan;
}

Graph graph_of(const Plan& plan) {
  Graph graph;
  graph.name = plan.name;
  graph.nranks = plan.nranks;
  graph.places.emplace_back(static_cast<size_t>(plan.nranks));
  std::iota(graph.places.front().begin(), graph.places.front().end(), 0);
  for (const Communicator& each : plan.communicators)
    graph.groups.push_back({each.name, each.ranks});
  for (const PlannedCall& call : plan.calls) {
    Op& op = graph.ops.emplace_back();
    op.id = call.op;
    op.stream = call.stream;
    op.after = call.after;
    op.collective = call.kind;
    op.us = call.us;
    op.bytes = call.bytes;
    op.root = call.root;
    if (!call.ranks.empty()) op.place = place_of(graph, call.ranks);
    if (!call.kind) continue;
    op.group = call.communicator;
    op.priority = plan.communicators[static_cast<size_t>(call.communicator)].priority;
  }
  check_graph(graph, plan.name);
  set_origins(graph);
  return graph;
}

std::string plan_to_json(const Plan& plan) {
  using json = nlohmann::ordered_json;
  std::string text = fmt::format(
      "{{\"plan\": 1, \"name\": {}, \"ranks\": {}, \"predicted_us\": {}, "
      "\"predicted_exposed_us\": {},\n \"communicators\": [",
      json(plan.name).dump(), plan.nranks, plan.predicted_us, plan.predicted_exposed_us);
  const char* separator = "\n  ";
  for (const Communicator& each : plan.communicators) {
    text += separator +
            json{{"name", each.name}, {"priority", each.priority}, {"ranks", each.ranks}}.dump();
    separator = ",\n  ";
  }
  text += "],\n \"calls\": [";
  separator = "\n  ";
  for (const PlannedCall& call : plan.calls) {
    json entry = {{"op", call.op}, {"stream", call.stream}};
    if (call.kind) {
      entry["kind"] = kind_text(*call.kind);
      entry["communicator"] = call.communicator;
      entry["offset"] = call.offset;
      entry["bytes"] = call.bytes;
      entry["call"] = call.call;
      entry["part"] = call.part;
      entry["parts"] = call.parts;
      if (call.root != 0) entry["root"] = call.root;
    } else {
      entry["us"] = call.us;
      if (!call.ranks.empty()) entry["ranks"] = call.ranks;
    }
    if (!call.after.empty()) entry["after"] = call.after;
    entry["begin_us"] = call.begin_us;
    entry["end_us"] = call.end_us;
    text += separator + entry.dump();
    separator = ",\n  ";
  }
  return text + "]}\n";
}

Plan plan_from_json(std::string_view text, const std::string& where) {
  const nlohmann::json document = parse_json(text, where);
  if (!document.is_object() || !document.contains("plan") || document["plan"] != 1)
    fail(ncclInvalidArgument, "{}: not a plan of 'weft overlap --plan'", where);
  const JsonReader reader{document, where};
  Plan plan;
  plan.name = reader.text("name", "");
  plan.nranks = reader.integer("ranks");
  plan.predicted_us = reader.number("predicted_us");
  plan.predicted_exposed_us = reader.number("predicted_exposed_us", 0);
  const auto *communicators = reader.find("communicators"), *calls = reader.find("calls");
  if (communicators == nullptr || !communicators->is_array() || calls == nullptr ||
      !calls->is_array())
    fail(ncclInvalidArgument, "{}: lists of communicators and calls are missing", where);
  for (const auto& each : *communicators) {
    const JsonReader entry{each, where + ": communicator"};
    if (!each.is_object()) fail(ncclInvalidArgument, "{}: not an object", entry.place);
    Communicator one{entry.text("name"), entry.integer("priority", 0), {}};
    const auto* ranks = entry.find("ranks");
    if (ranks == nullptr || !ranks->is_array()) entry.refuse("ranks", "lists of ranks");
    for (const auto& list : *ranks)
      one.ranks.push_back(entry.ranks(list, plan.nranks, "'" + one.name + "'"));
    plan.communicators.push_back(std::move(one));
  }
  const std::vector<int> lines = element_lines(text, "calls");
  for (size_t i = 0; i < calls->size(); i++)
    plan.calls.push_back(
        read_call({(*calls)[i], fmt::format("{}: line {}: call {}", where, lines[i], i)}, plan,
                  static_cast<int>(i)));
  return plan;
}

}  // namespace weft::workload
