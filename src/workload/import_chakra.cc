// graph_from_chakra() of import.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "src/base/error.h"
#include "src/workload/chakra_protobuf.h"
#include "src/workload/check.h"
#include "src/workload/import.h"
#include "src/workload/json_reader.h"

namespace weft::workload {
namespace {

using json = nlohmann::json;

// Chakra's numbers.
constexpr CollectiveKind kChakraKinds[] = {
    CollectiveKind::kAllReduce, CollectiveKind::kReduce,        CollectiveKind::kAllGather,
    CollectiveKind::kGather,    CollectiveKind::kScatter,       CollectiveKind::kBroadcast,
    CollectiveKind::kAllToAll,  CollectiveKind::kReduceScatter, CollectiveKind::kReduceScatter};

// protobuf's JSON writes 64-bit numbers as strings, and names in either case.
double number_in(const json& value) {
  double number = 0;
  if (value.is_number()) number = value.get<double>();
  if (value.is_string()) number = std::strtod(value.get<std::string>().c_str(), nullptr);
  if (value.is_boolean()) number = value.get<bool>() ? 1 : 0;
  if (!(number >= 0 && number <= 1e18))
    fail(ncclInvalidArgument, "the trace has a number that is none or negative: {}", value.dump());
  return number;
}

const json* member(const json& object, const char* snake, const char* camel) {
  for (const char* name : {snake, camel})
    if (const auto it = object.find(name); it != object.end()) return &*it;
  return nullptr;
}

int type_of(const json& node) {
  const auto it = node.find("type");
  if (it == node.end()) return 0;
  if (it->is_number()) return it->get<int>();
  constexpr std::string_view kNames[] = {"INVALID_NODE",   "METADATA_NODE", "MEM_LOAD_NODE",
                                         "MEM_STORE_NODE", "COMP_NODE",     "COMM_SEND_NODE",
                                         "COMM_RECV_NODE", "COMM_COLL_NODE"};
  for (size_t i = 0; i < std::size(kNames); i++)
    if (it->is_string() && it->get<std::string>() == kNames[i]) return static_cast<int>(i);
  return 0;
}

// The value of an attribute: whichever member is not its name.
const json* attribute(const json& node, std::string_view name) {
  const json* all = member(node, "attr", "attrs");
  if (all == nullptr || !all->is_array()) return nullptr;
  for (const json& each : *all) {
    if (!each.is_object() || each.value("name", "") != name) continue;
    for (const auto& [key, value] : each.items())
      if (key.ends_with("_val") || key.ends_with("Val")) return &value;
  }
  return nullptr;
}

int most_rank(const json& nodes) {
  double most = 1;
  for (const json& node : nodes)
    for (const char* name : {"comm_src", "comm_dst"})
      if (const json* value = attribute(node, name)) most = std::max(most, number_in(*value) + 1);
  return static_cast<int>(most);
}

class ChakraReader {
 public:
  ChakraReader(json document, const std::string& where, int ranks)
      : where_(where), document_(std::move(document)) {
    nodes_ = document_.is_array() ? &document_ : &document_.at("nodes");
    if (!nodes_->is_array() || nodes_->empty())
      fail(ncclInvalidArgument, "{}: there are no nodes", where);
    graph_.name = where;
    graph_.source = "Chakra";
    graph_.nranks = std::max(ranks, most_rank(*nodes_));
    if (document_.is_object())
      graph_.nranks = std::max(graph_.nranks, document_.value("world_size", 1));
    for (const json& node : *nodes_)
      if (const json* size = attribute(node, "group_size"); size != nullptr)
        graph_.nranks =
            std::max(graph_.nranks, static_cast<int>(std::min(number_in(*size), 65536.0)));
    graph_.places.emplace_back(static_cast<size_t>(graph_.nranks));
    std::iota(graph_.places.front().begin(), graph_.places.front().end(), 0);
  }

  Graph read() {
    for (const json& node : *nodes_) {
      if (!node.is_object() || !node.contains("id"))
        fail(ncclInvalidArgument, "{}: a node has no id", where_);
      add(node);
    }
    check_passed();
    for (size_t i = 0; i < waits_.size(); i++) resolve(waits_[i], graph_.ops[i]);
    check_graph(graph_, where_);
    set_origins(graph_);
    return std::move(graph_);
  }

 private:
  std::vector<double> dependencies(const json& node) const {
    std::vector<double> all;
    for (const auto& [snake, camel] :
         {std::pair{"data_deps", "dataDeps"}, {"ctrl_deps", "ctrlDeps"}})
      if (const json* list = member(node, snake, camel); list != nullptr && list->is_array())
        for (const json& each : *list) all.push_back(number_in(each));
    return all;
  }

  // Metadata and memory nodes have no time: whoever waits for them waits for what they wait for.
  void resolve(std::vector<double> open, Op& op) const {
    std::set<double> seen(open.begin(), open.end());
    while (!open.empty()) {
      const double id = open.back();
      open.pop_back();
      if (const auto it = index_.find(id); it != index_.end()) {
        op.after.push_back(it->second);
        continue;
      }
      const auto through = passed_.find(id);
      if (through == passed_.end())
        fail(ncclInvalidArgument, "{}: operation '{}' depends on node {}, which is not there",
             where_, op.id, id);
      for (const double each : through->second)
        if (seen.insert(each).second) open.push_back(each);
    }
    std::sort(op.after.begin(), op.after.end());
    op.after.erase(std::unique(op.after.begin(), op.after.end()), op.after.end());
  }

  // Nodes without time must not wait for each other in a circle: takes those away that wait for
  // none that is left.
  void check_passed() const {
    std::map<double, size_t> waits;
    std::map<double, std::vector<double>> waiting;
    for (const auto& [id, list] : passed_)
      for (const double each : list)
        if (passed_.count(each) > 0) {
          waits[id]++;
          waiting[each].push_back(id);
        }
    std::vector<double> free;
    for (const auto& [id, list] : passed_)
      if (waits.count(id) == 0) free.push_back(id);
    while (!free.empty()) {
      const double id = free.back();
      free.pop_back();
      for (const double each : waiting[id])
        if (--waits[each] == 0) {
          waits.erase(each);
          free.push_back(each);
        }
    }
    if (!waits.empty())
      fail(ncclInvalidArgument, "{}: node {} depends on itself", where_, waits.begin()->first);
  }

  void add(const json& node) {
    const double id = number_in(node["id"]);
    const int type = type_of(node);
    const json* micros = member(node, "duration_micros", "durationMicros");
    Op op;
    op.id = fmt::format("{}:{}", node.value("name", "node"), id);
    const double us = micros == nullptr ? 0 : number_in(*micros);
    if (us < 0) fail(ncclInvalidArgument, "{}: operation '{}' has a negative time", where_, op.id);
    const json* cpu = attribute(node, "is_cpu_op");
    if (type == 7) {
      take_collective(node, op);
      op.us = us;
    } else if (type == 4 && (cpu == nullptr || number_in(*cpu) == 0)) {
      op.us = us;
      op.stream = kComputeStream;
    } else if (type == 5 || type == 6) {
      fail(ncclInvalidArgument,
           "{}: operation '{}' is a send or receive: the trace of one rank does not say its peer's "
           "order; only collectives are imported",
           where_, op.id);
    } else {
      passed_[id] = dependencies(node);
      return;
    }
    index_[id] = static_cast<int>(graph_.ops.size());
    waits_.push_back(dependencies(node));
    graph_.ops.push_back(std::move(op));
  }

  void take_collective(const json& node, Op& op) {
    const json *kind = attribute(node, "comm_type"), *size = attribute(node, "comm_size");
    if (kind == nullptr || size == nullptr)
      fail(ncclInvalidArgument, "{}: operation '{}' lacks comm_type or comm_size", where_, op.id);
    const double number = number_in(*kind);
    if (number < 0 || number >= static_cast<double>(std::size(kChakraKinds)))
      fail(ncclInvalidArgument, "{}: operation '{}' has the unknown comm_type {}", where_, op.id,
           number);
    op.collective = kChakraKinds[static_cast<size_t>(number)];
    op.bytes = number_in(*size);
    op.stream = kCommStream;
    op.phase = Phase::kGradient;
    if (graph_.nranks < 2)
      fail(ncclInvalidArgument, "{}: the trace does not say how many ranks there are: --ranks",
           where_);
    std::vector<int> ranks(static_cast<size_t>(graph_.nranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    op.group = group_of(graph_, "all", {ranks});
  }

  const std::string where_;
  const json document_;
  const json* nodes_ = nullptr;
  Graph graph_;
  std::map<double, int> index_;                   // by Chakra's id
  std::map<double, std::vector<double>> passed_;  // nodes without time
  std::vector<std::vector<double>> waits_;        // per operation
};

}  // namespace

Graph graph_from_chakra(std::string_view text, const std::string& where, int ranks) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const bool is_json =
      begin != std::string_view::npos && (text[begin] == '{' || text[begin] == '[');
  try {
    return ChakraReader(is_json ? parse_json(text, where) : chakra_nodes(text, where), where, ranks)
        .read();
  } catch (const json::exception& error) {  // a member of another type
    fail(ncclInvalidArgument, "{}: not a Chakra trace: {}", where, error.what());
  }
}

}  // namespace weft::workload
