// See graph_json.h.
#include "src/workload/graph_json.h"

#include <fmt/format.h>

#include <numeric>
#include <unordered_map>

#include "src/base/error.h"
#include "src/workload/check.h"
#include "src/workload/json_reader.h"
#include "src/workload/training.h"

namespace weft::workload {
namespace {

using json = nlohmann::json;
constexpr size_t kMostOps = 1u << 20;

Phase phase_named(const JsonReader& reader, const std::string& text) {
  for (int i = 0; i < kPhases; i++)
    if (name_of(static_cast<Phase>(i)) == text) return static_cast<Phase>(i);
  reader.refuse("phase", "fwd, dX, dW, grad, opt, param or extra");
}

void read_groups(const JsonReader& reader, Graph& graph) {
  const json* groups = reader.find("groups");
  if (groups == nullptr) return;
  if (!groups->is_object()) reader.refuse("groups", "an object");
  for (const auto& [name, value] : groups->items()) {
    Group group{name, {}};
    if (!value.is_array() || value.empty()) reader.refuse("groups", "lists of ranks");
    const std::string of = fmt::format("group '{}'", name);
    if (value.front().is_array()) {
      std::vector<bool> seen(static_cast<size_t>(graph.nranks), false);
      for (const auto& each : value) {
        group.instances.push_back(reader.ranks(each, graph.nranks, of));
        if (group.instances.back().size() != group.instances.front().size())
          fail(ncclInvalidArgument, "{}: the lists of {} differ in length", reader.place, of);
        for (const int rank : group.instances.back()) {
          if (seen[static_cast<size_t>(rank)])
            fail(ncclInvalidArgument, "{}: {} names rank {} twice", reader.place, of, rank);
          seen[static_cast<size_t>(rank)] = true;
        }
      }
    } else {
      group.instances.push_back(reader.ranks(value, graph.nranks, of));
    }
    graph.groups.push_back(std::move(group));
  }
}

Op read_op(const JsonReader& reader, Graph& graph) {
  Op op;
  op.layer = reader.integer("layer", -1);
  op.microbatch = reader.integer("microbatch", -1);
  op.phase = phase_named(reader, reader.text("phase", "fwd"));
  op.axis = reader.text("axis", "");
  if (reader.find("collective") == nullptr) {
    op.us = reader.number("us");
    op.floor_us = reader.number("floor_us", 0);
    op.context = reader.number("context", 0);
    if (op.context > 1) reader.refuse("context", "from 0 to 1");
    op.stream = reader.text("stream", kComputeStream);
    if (const json* ranks = reader.find("ranks"))
      op.place = place_of(graph, reader.ranks(*ranks, graph.nranks, "'ranks'"));
    return op;
  }
  const std::string kind = reader.text("collective");
  op.collective = kind == "send_recv" ? CollectiveKind::kSendRecv : parse_collective(kind);
  if (!op.collective) reader.refuse("collective", "a collective, as in 'weft explain'");
  op.bytes = reader.number("bytes");
  op.us = reader.number("us", 0);
  op.stream = reader.text("stream", kCommStream);
  op.priority = reader.integer("priority", 0);
  op.sms = reader.integer("sms", -1);
  op.root = reader.integer("root", 0);
  op.parts = reader.integer("parts", 1);
  op.part = reader.integer("part", 0);
  op.call_bytes = reader.number("call_bytes", 0);
  if (op.parts < 1) reader.refuse("parts", "1 or more");
  if (op.part < 0 || op.part >= op.parts) reader.refuse("part", "below 'parts'");
  const std::string group = reader.text("group");
  for (size_t g = 0; g < graph.groups.size(); g++)
    if (graph.groups[g].name == group) op.group = static_cast<int>(g);
  if (op.group < 0) fail(ncclInvalidArgument, "{}: there is no group '{}'", reader.place, group);
  const size_t size = graph.groups[static_cast<size_t>(op.group)].instances.front().size();
  if (op.collective == CollectiveKind::kSendRecv && size != 2)
    fail(ncclInvalidArgument, "{}: send_recv needs groups of two ranks; '{}' has {}", reader.place,
         group, size);
  if (static_cast<size_t>(op.root) >= size)
    fail(ncclInvalidArgument, "{}: root {} is not in group '{}'", reader.place, op.root, group);
  return op;
}

void read_ops(const JsonReader& reader, std::string_view text, const std::string& where,
              Graph& graph) {
  const json* list = reader.find("ops");
  if (list == nullptr || !list->is_array())
    fail(ncclInvalidArgument, "{}: 'ops' must be a list of operations", where);
  if (list->size() > kMostOps)
    fail(ncclInvalidArgument, "{}: more than {} operations", where, kMostOps);
  const std::vector<int> lines = element_lines(text, "ops");
  std::unordered_map<std::string, int> index;
  std::vector<std::vector<std::string>> after;
  for (size_t i = 0; i < list->size(); i++) {
    const int line = i < lines.size() ? lines[i] : 0;
    const json& object = (*list)[i];
    JsonReader entry{object, fmt::format("{}: line {}: operation {}", where, line, i)};
    if (!object.is_object()) fail(ncclInvalidArgument, "{}: not an object", entry.place);
    const std::string id = entry.text("id");
    entry.place = fmt::format("{}: line {}: operation '{}'", where, line, id.substr(0, 60));
    Op op = read_op(entry, graph);
    op.id = id;
    op.line = line;
    if (!index.emplace(id, static_cast<int>(i)).second)
      fail(ncclInvalidArgument, "{}: there are two with this id", entry.place);
    after.emplace_back();
    if (const json* names = entry.find("after")) {
      if (!names->is_array()) entry.refuse("after", "a list of ids");
      for (const auto& each : *names) {
        if (!each.is_string()) entry.refuse("after", "a list of ids");
        after.back().push_back(each.get<std::string>());
      }
    }
    graph.ops.push_back(std::move(op));
  }
  for (size_t i = 0; i < after.size(); i++)
    for (const std::string& id : after[i]) {
      const auto it = index.find(id);
      if (it == index.end())
        fail(ncclInvalidArgument, "{}: line {}: operation '{}': is after '{}', which is not there",
             where, graph.ops[i].line, graph.ops[i].id, id.substr(0, 60));
      graph.ops[i].after.push_back(it->second);
    }
}

}  // namespace

Graph graph_from_json(std::string_view text, const std::string& where) {
  const json document = parse_json(text, where);
  if (!document.is_object()) fail(ncclInvalidArgument, "{}: not an object", where);
  const JsonReader reader{document, where};
  Graph graph;
  if (reader.find("training") != nullptr) {
    graph = training_graph(read_training(reader));
  } else {
    graph.nranks = reader.integer("ranks");
    if (graph.nranks < 1 || graph.nranks > 1 << 16) reader.refuse("ranks", "from 1 to 65536");
    graph.sms = reader.integer("sms", 0);
    graph.comm_sms = reader.integer("comm_sms", 0);
    graph.split_us = reader.number("split_us", 0);
    graph.batch = reader.integer("batch", 0);
    graph.places.emplace_back(static_cast<size_t>(graph.nranks));
    std::iota(graph.places.front().begin(), graph.places.front().end(), 0);
    read_groups(reader, graph);
    read_ops(reader, text, where, graph);
  }
  graph.name = reader.text("name", "");
  graph.source = reader.text("source", "");
  check_graph(graph, where);
  set_origins(graph);
  return graph;
}

std::string graph_to_json(const Graph& graph) {
  using ordered = nlohmann::ordered_json;
  std::string text = fmt::format(
      "{{\"name\": {}, \"source\": {}, \"ranks\": {}, \"sms\": {}, \"comm_sms\": {}, "
      "\"split_us\": {}, \"batch\": {},\n \"groups\": {{",
      ordered(graph.name).dump(), ordered(graph.source).dump(), graph.nranks, graph.sms,
      graph.comm_sms, graph.split_us, graph.batch);
  const char* separator = "\n  ";
  for (const Group& group : graph.groups) {
    text += fmt::format("{}{}: {}", separator, ordered(group.name).dump(),
                        ordered(group.instances).dump());
    separator = ",\n  ";
  }
  text += "},\n \"ops\": [";
  separator = "\n  ";
  for (const Op& op : graph.ops) {
    ordered entry = {{"id", op.id}};
    if (op.collective) {
      entry["collective"] = op.collective == CollectiveKind::kSendRecv
                                ? "send_recv"
                                : std::string(name(*op.collective));
      entry["bytes"] = op.bytes;
      if (op.us > 0) entry["us"] = op.us;
      entry["group"] = graph.groups[static_cast<size_t>(op.group)].name;
      if (op.priority != 0) entry["priority"] = op.priority;
      if (op.sms >= 0) entry["sms"] = op.sms;
      if (op.root != 0) entry["root"] = op.root;
      if (op.parts > 1) {
        entry["part"] = op.part;
        entry["parts"] = op.parts;
        entry["call_bytes"] = op.call_bytes;
      }
      if (op.stream != kCommStream) entry["stream"] = op.stream;
    } else {
      entry["us"] = op.us;
      if (op.floor_us > 0) entry["floor_us"] = op.floor_us;
      if (op.context > 0) entry["context"] = op.context;
      if (op.place != 0) entry["ranks"] = graph.places[static_cast<size_t>(op.place)];
      if (op.stream != kComputeStream) entry["stream"] = op.stream;
    }
    if (op.layer >= 0) entry["layer"] = op.layer;
    if (op.microbatch >= 0) entry["microbatch"] = op.microbatch;
    entry["phase"] = name_of(op.phase);
    if (!op.axis.empty()) entry["axis"] = op.axis;
    for (const int each : op.after)
      entry["after"].push_back(graph.ops[static_cast<size_t>(each)].id);
    text += separator + entry.dump();
    separator = ",\n  ";
  }
  return text + "]}\n";
}

}  // namespace weft::workload
