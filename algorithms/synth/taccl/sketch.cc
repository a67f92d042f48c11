// See sketch.h.
#include "algorithms/synth/taccl/sketch.h"

#include "algorithms/synth/taccl/json_fields.h"
#include "src/base/error.h"
#include "src/topology/formats/read_machine.h"

namespace weft {
namespace {

using nlohmann::json;

void read_intranode(const json& object, const std::string& place, Sketch& sketch) {
  const JsonFields fields(object, place, {"strategy", "switches", "switch_hyperedge_strategy"});
  const std::string strategy = fields.text("strategy");
  if (strategy == "none")
    sketch.intranode = Sketch::Intranode::kNone;
  else if (strategy == "switch")
    sketch.intranode = Sketch::Intranode::kSwitch;
  else if (strategy == "minmax")
    sketch.intranode = Sketch::Intranode::kMinMax;
  else if (strategy == "maxmin")
    sketch.intranode = Sketch::Intranode::kMaxMin;
  else
    fields.refuse("strategy", fmt::format("is '{}', known are none, switch, minmax and maxmin",
                                          strategy.substr(0, 40)));
  if (sketch.intranode != Sketch::Intranode::kSwitch) {
    for (const char* name : {"switches", "switch_hyperedge_strategy"})
      if (fields.has(name))
        fields.refuse(name, fmt::format("has no meaning with strategy '{}'", strategy));
    return;
  }
  const json& switches = fields.any("switches");
  if (!switches.is_array() || switches.empty())
    fields.refuse("switches", "must be a list of lists");
  for (const json& gpus : switches)
    sketch.switches.push_back(
        fields.indices(gpus, fmt::format("switches[{}]", sketch.switches.size())));
  const json& policies = fields.any("switch_hyperedge_strategy");
  if (!policies.is_array() || policies.size() != sketch.switches.size())
    fields.refuse(
        "switch_hyperedge_strategy",
        fmt::format("must have an entry for each of the {} switches", sketch.switches.size()));
  for (const json& policy : policies) {
    const bool few = policy == "uc-min";
    if (!few && policy != "uc-max")
      fields.refuse(fmt::format("switch_hyperedge_strategy[{}]", sketch.policies.size()),
                    "must be \"uc-min\" or \"uc-max\"");
    sketch.policies.push_back(few ? Sketch::Policy::kFewLinks : Sketch::Policy::kManyLinks);
  }
}

// {"1": [0, 2]}
std::map<int, std::vector<int>> read_map(const JsonFields& fields, const char* name) {
  const json object = fields.object(name);
  if (object.empty()) fields.refuse(name, "names nobody");
  std::map<int, std::vector<int>> result;
  for (const auto& [key, list] : object.items()) {
    const std::string element = fmt::format("{}[\"{}\"]", name, key.substr(0, 20));
    if (key.empty() || key.size() > 5 || key.find_first_not_of("0123456789") != std::string::npos)
      fields.refuse(element, "must have the number of a GPU as its key");
    if (!result.emplace(std::stoi(key), fields.indices(list, element)).second)
      fields.refuse(element, "is there twice");
  }
  return result;
}

void read_internode(const json& object, const std::string& place, Sketch& sketch) {
  const JsonFields fields(
      object, place, {"strategy", "internode_conn", "gpus_to_sender_rev_map", "enforce_ordering"});
  if (const std::string strategy = fields.text("strategy"); strategy != "relay")
    fields.refuse("strategy", fmt::format("is '{}', known is relay", strategy.substr(0, 40)));
  const json& connections = fields.any("internode_conn");
  if (connections.is_object()) {
    sketch.conn = Sketch::Connections::kMap;
    sketch.connections = read_map(fields, "internode_conn");
  } else if (connections == "fully-connected") {
    sketch.conn = Sketch::Connections::kAll;
  } else if (connections == "direct-map") {
    sketch.conn = Sketch::Connections::kSameGpu;
  } else {
    fields.refuse("internode_conn", "must be a map, \"fully-connected\" or \"direct-map\"");
  }
  if (fields.has("gpus_to_sender_rev_map"))
    sketch.senders = read_map(fields, "gpus_to_sender_rev_map");
  sketch.own_first = fields.flag("enforce_ordering", false);
  if (sketch.conn == Sketch::Connections::kMap)
    for (const auto& [sender, gpus] : sketch.senders)
      if (!sketch.connections.contains(sender))
        fields.refuse("gpus_to_sender_rev_map",
                      fmt::format("names sender {}, which internode_conn does not know", sender));
}

}  // namespace

Sketch read_sketch(std::string_view text, const std::string& name) {
  const json parsed = parse_json_object(text, name);
  const JsonFields fields(
      parsed, name + ": ",
      {"nnodes", "intranode_sketch", "internode_sketch", "symmetry_offsets", "hyperparameters"});
  Sketch sketch;
  sketch.name = name;
  sketch.hosts = fields.whole("nnodes", 1, 65536);
  read_intranode(fields.object("intranode_sketch"), fields.inside("intranode_sketch"), sketch);
  if (sketch.hosts > 1)
    read_internode(fields.object("internode_sketch"), fields.inside("internode_sketch"), sketch);
  else if (fields.has("internode_sketch"))
    fields.refuse("internode_sketch", "has no meaning with one node");
  const json& symmetry = fields.any("symmetry_offsets");
  if (!symmetry.is_array()) fields.refuse("symmetry_offsets", "must be a list");
  for (const json& entry : symmetry) {
    const std::string element = fmt::format("symmetry_offsets[{}]", sketch.symmetry.size());
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_number_integer() ||
        !entry[1].is_number_integer())
      fields.refuse(element, "must be [offset, group size]");
    if (entry[0] < 1 || entry[1] > 65536 || entry[0] >= entry[1])
      fields.refuse(element, "must have an offset from 1 to the group size - 1");
    sketch.symmetry.emplace_back(entry[0].get<int>(), entry[1].get<int>());
  }
  const json parameters = fields.object("hyperparameters");
  sketch.chunks = JsonFields(parameters, fields.inside("hyperparameters"), {"input_chunkup"})
                      .whole("input_chunkup", 1, 64);
  return sketch;
}

Sketch load_sketch(const std::string& path) { return read_sketch(read_text_file(path), path); }

}  // namespace weft
