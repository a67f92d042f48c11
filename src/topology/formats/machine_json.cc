// See machine_json.h.
#include "src/topology/formats/machine_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "src/base/error.h"
#include "src/topology/graph/network.h"

namespace weft {
namespace {

using json = nlohmann::json;
constexpr size_t kMostElements = 1u << 20;

json parse(std::string_view text, const std::string& where) {
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::exception& error) {
    std::string what = error.what();
    if (const auto at = what.find("] "); at != std::string::npos) what.erase(0, at + 2);
    for (char& c : what)
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
    fail(ncclInvalidArgument, "{}: not JSON: {}", where, what.substr(0, 200));
  }
}

// Reads the members of one object. Errors name the member that is wrong.
struct Fields {
  const json& object;
  std::string place;  // "file: node 3"

  [[noreturn]] void refuse(const char* name, const char* wanted) const {
    fail(ncclInvalidArgument, "{}: '{}' must be {}", place, name, wanted);
  }
  const json* find(const char* name, bool needed) const {
    const auto it = object.find(name);
    if (it != object.end()) return &*it;
    if (needed) fail(ncclInvalidArgument, "{}: '{}' is missing", place, name);
    return nullptr;
  }
  std::string text(const char* name, bool needed = false) const {
    const json* value = find(name, needed);
    if (value == nullptr) return "";
    if (!value->is_string()) refuse(name, "a string");
    return value->get<std::string>();
  }
  double number(const char* name, bool needed, double least, double otherwise) const {
    const json* value = find(name, needed);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) refuse(name, "a number");
    const double result = value->get<double>();
    if (!std::isfinite(result) || result < least || result > 1e9)
      refuse(name, "a sensible number, not negative");
    return result;
  }
  int integer(const char* name, int least, int otherwise) const {
    const json* value = find(name, false);
    if (value == nullptr) return otherwise;
    if (!value->is_number_integer()) refuse(name, "a whole number");
    const auto result = value->get<int64_t>();
    if (result < least || result > 1 << 24) refuse(name, "in range");
    return static_cast<int>(result);
  }
  bool flag(const char* name, bool otherwise) const {
    const json* value = find(name, false);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(name, "true or false");
    return value->get<bool>();
  }
  const json& list(const char* name) const {
    const json* value = find(name, true);
    if (!value->is_array()) refuse(name, "a list");
    if (value->size() > kMostElements) refuse(name, "shorter");
    return *value;
  }
};

template <typename Enum>
Enum word(const Fields& fields, const std::string& value, std::initializer_list<Enum> all) {
  std::string words;
  for (const Enum each : all) {
    if (name_of(each) == value) return each;
    words += fmt::format("{}{}", words.empty() ? "" : ", ", name_of(each));
  }
  fail(ncclInvalidArgument, "{}: type '{}' is none of {}", fields.place, value.substr(0, 60),
       words);
}

Fields element(const json& object, std::string place) {
  if (!object.is_object()) fail(ncclInvalidArgument, "{}: not an object", place);
  return {object, std::move(place)};
}

Node read_node(const json& object, const std::string& where, size_t index) {
  Fields fields = element(object, fmt::format("{}: node {}", where, index));
  Node node;
  node.id = fields.text("id", true);
  if (node.id.empty()) fields.refuse("id", "a name");
  fields.place += fmt::format(" ('{}')", node.id.substr(0, 60));
  node.type = word<NodeType>(fields, fields.text("type", true),
                             {NodeType::kGpu, NodeType::kCpu, NodeType::kSwitch, NodeType::kNic});
  node.host = fields.integer("host", -1, 0);
  node.model = fields.text("model");
  node.pci = fields.text("pci");
  node.numa = fields.integer("numa", -1, -1);
  node.gbps = fields.number("gbps", false, 0, 0);
  node.us = fields.number("us", false, 0, 0);
  if (const json* facts = fields.find("facts", false)) {
    if (!facts->is_object()) fields.refuse("facts", "an object");
    for (const auto& [name, value] : facts->items()) {
      if (!value.is_string()) fields.refuse(name.c_str(), "a string");
      node.facts[name] = value.get<std::string>();
    }
  }
  return node;
}

std::string node_line(const Node& node) {
  std::string line = fmt::format(R"({{"id": {}, "type": "{}", "host": {})", json_quoted(node.id),
                                 name_of(node.type), node.host);
  if (!node.model.empty()) line += fmt::format(R"(, "model": {})", json_quoted(node.model));
  if (!node.pci.empty()) line += fmt::format(R"(, "pci": {})", json_quoted(node.pci));
  if (node.numa >= 0) line += fmt::format(R"(, "numa": {})", node.numa);
  if (node.gbps > 0) line += fmt::format(R"(, "gbps": {}, "us": {})", node.gbps, node.us);
  if (!node.facts.empty()) {
    std::string facts;
    for (const auto& [name, value] : node.facts)
      facts +=
          fmt::format("{}{}: {}", facts.empty() ? "" : ", ", json_quoted(name), json_quoted(value));
    line += fmt::format(R"(, "facts": {{{}}})", facts);
  }
  return line + "}";
}

Fabric read_network(const Fields& fields, size_t hosts) {
  Fabric network;
  network.rails = fields.flag("rails", false);
  network.spine = fields.flag("spine", true);
  network.oversubscription = fields.number("oversubscription", false, 1e-6, 1);
  network.switch_us = fields.number("switch_us", false, 0, network.switch_us);
  if (fields.find("racks", false) == nullptr) return network;
  for (const auto& rack : fields.list("racks")) {
    if (!rack.is_array()) fields.refuse("racks", "a list of lists of host numbers");
    auto& members = network.racks.emplace_back();
    for (const auto& host : rack) {
      if (!host.is_number_unsigned() || host.get<uint64_t>() >= hosts)
        fields.refuse("racks", "a list of lists of host numbers");
      members.push_back(host.get<int>());
    }
  }
  return network;
}

}  // namespace

std::string json_quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

Machine machine_from_json(std::string_view text, const std::string& where) {
  const json document = parse(text, where);
  const Fields fields = element(document, where);
  Machine machine;
  machine.name = fields.text("name");
  std::unordered_map<std::string, int> index;
  for (const auto& object : fields.list("nodes")) {
    Node node = read_node(object, where, machine.nodes.size());
    if (!index.emplace(node.id, static_cast<int>(machine.nodes.size())).second)
      fail(ncclInvalidArgument, "{}: node {}: there are two nodes with id '{}'", where,
           machine.nodes.size(), node.id.substr(0, 60));
    machine.nodes.push_back(std::move(node));
  }
  size_t number = 0;
  for (const auto& object : fields.list("links")) {
    const Fields end = element(object, fmt::format("{}: link {}", where, number++));
    Link link;
    const auto lookup = [&](const char* name) {
      const std::string id = end.text(name, true);
      const auto it = index.find(id);
      if (it == index.end())
        fail(ncclInvalidArgument, "{}: '{}' names '{}', but there is no such node", end.place, name,
             id.substr(0, 60));
      return it->second;
    };
    link.from = lookup("from");
    link.to = lookup("to");
    if (link.from == link.to)
      fail(ncclInvalidArgument, "{}: leads from '{}' to itself", end.place,
           machine.nodes[link.from].id.substr(0, 60));
    const std::string type = end.text("type");
    link.type = type.empty() ? LinkType::kOther
                             : word<LinkType>(end, type,
                                              {LinkType::kNvlink, LinkType::kPcie, LinkType::kXgmi,
                                               LinkType::kSocket, LinkType::kNetwork,
                                               LinkType::kC2c, LinkType::kOther});
    link.gbps = end.number("gbps", true, 0, 0);
    if (link.gbps <= 0) end.refuse("gbps", "above 0");
    link.us = end.number("us", false, 0, 0);
    link.count = end.integer("count", 1, 1);
    machine.links.push_back(link);
    if (end.flag("both", false)) {
      std::swap(link.from, link.to);
      machine.links.push_back(link);
    }
  }
  if (fields.find("notes", false) != nullptr) {
    for (const auto& note : fields.list("notes")) {
      if (!note.is_string()) fields.refuse("notes", "a list of strings");
      machine.notes.push_back(note.get<std::string>());
    }
  }
  return machine;
}

std::string machine_to_json(const Machine& machine) {
  std::string text = fmt::format("{{\"name\": {},\n \"nodes\": [", json_quoted(machine.name));
  const char* separator = "\n  ";
  for (const auto& node : machine.nodes) {
    text += separator + node_line(node);
    separator = ",\n  ";
  }
  text += "],\n \"links\": [";
  separator = "\n  ";
  for (size_t i = 0; i < machine.links.size(); i++) {
    const Link& link = machine.links[i];
    Link back = link;
    std::swap(back.from, back.to);
    const bool both = i + 1 < machine.links.size() && machine.links[i + 1] == back;
    text +=
        fmt::format(R"({}{{"from": {}, "to": {}, "type": "{}", "gbps": {}, "us": {})", separator,
                    json_quoted(machine.nodes[link.from].id),
                    json_quoted(machine.nodes[link.to].id), name_of(link.type), link.gbps, link.us);
    if (link.count != 1) text += fmt::format(R"(, "count": {})", link.count);
    text += both ? R"(, "both": true})" : "}";
    if (both) i++;
    separator = ",\n  ";
  }
  text += "]";
  if (!machine.notes.empty()) {
    text += ",\n \"notes\": [";
    separator = "\n  ";
    for (const auto& note : machine.notes) {
      text += separator + json_quoted(note);
      separator = ",\n  ";
    }
    text += "]";
  }
  return text + "}\n";
}

bool is_cluster_json(std::string_view text) {
  const json document = json::parse(text.begin(), text.end(), nullptr, false);
  return document.is_object() && document.contains("hosts") && !document.contains("nodes");
}

Machine cluster_from_json(std::string_view text, const std::string& where, const Resolve& resolve) {
  const json document = parse(text, where);
  const Fields fields = element(document, where);
  std::vector<Machine> hosts;
  for (const auto& entry : fields.list("hosts")) {
    std::string name;
    int count = 1;
    if (entry.is_string()) {
      name = entry.get<std::string>();
    } else {
      const Fields host = element(entry, fmt::format("{}: host {}", where, hosts.size()));
      name = host.text("machine", true);
      count = host.integer("count", 1, 1);
    }
    if (hosts.size() + static_cast<size_t>(count) > 1u << 16)
      fail(ncclInvalidArgument, "{}: more than {} hosts", where, 1u << 16);
    hosts.insert(hosts.end(), static_cast<size_t>(count), resolve(name));
  }
  Fabric network;
  if (const json* object = fields.find("network", false))
    network = read_network(element(*object, where + ": network"), hosts.size());
  Machine all = join(hosts, network);
  if (const std::string name = fields.text("name"); !name.empty()) all.name = name;
  return all;
}

}  // namespace weft
