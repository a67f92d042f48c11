// See taccl_topology.h.
#include "algorithms/synth/taccl/taccl_topology.h"

#include "algorithms/synth/taccl/json_fields.h"
#include "src/base/error.h"
#include "src/topology/formats/read_machine.h"

namespace weft {
namespace {

// NVLinks between the eight GPUs of an NDv2 (DGX-1): the hybrid cube mesh.
constexpr int kNdv2[8][8] = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0},
                             {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
                             {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                             {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};

void read_custom(const JsonFields& fields, TacclTopology& topology) {
  const nlohmann::json& links = fields.any("links");
  const nlohmann::json& betas = fields.any("betas");
  const auto n = static_cast<size_t>(topology.gpus);
  for (const auto& [matrix, name] : {std::pair(&links, "links"), std::pair(&betas, "betas")}) {
    bool square = matrix->is_array() && matrix->size() == n;
    for (size_t r = 0; square && r < n; r++) {
      square = (*matrix)[r].is_array() && (*matrix)[r].size() == n;
      for (size_t c = 0; square && c < n; c++)
        square = (*matrix)[r][c].is_number() && (*matrix)[r][c] >= 0;
    }
    if (!square) fields.refuse(name, fmt::format("must be {} rows of {} numbers", n, n));
  }
  topology.custom_betas.assign(n, std::vector<double>(n, 0));
  for (size_t to = 0; to < n; to++)
    for (size_t from = 0; from < n; from++) {
      if (links[to][from] == 0 || from == to) continue;
      topology.custom_betas[to][from] = betas[to][from].get<double>();
      if (!(topology.custom_betas[to][from] > 0))
        fields.refuse(fmt::format("betas[{}][{}]", to, from),
                      "is 0, but there is a link: its bandwidth would have no end");
    }
}

}  // namespace

double TacclTopology::beta(int from, int to) const {
  if (from == to) return 0;
  if (!custom_betas.empty())
    return custom_betas[static_cast<size_t>(to)][static_cast<size_t>(from)];
  if (betas.size() == 1) return betas[0];
  const int links = kNdv2[from][to];
  return links == 0 ? 0 : betas[static_cast<size_t>(2 - links)];
}

TacclTopology read_taccl_topology(std::string_view text, const std::string& name) {
  const nlohmann::json parsed = parse_json_object(text, name);
  const JsonFields fields(
      parsed, name + ": ",
      {"name", "gpus_per_node", "nics_per_node", "alpha", "node_betas_list", "node_invbws_list",
       "remote_alpha", "remote_beta", "remote_invbw", "links", "betas", "invbws"});
  TacclTopology topology;
  topology.name = name;
  topology.gpus = fields.whole("gpus_per_node", 1, 4096);
  topology.nics = fields.has("nics_per_node") ? fields.whole("nics_per_node", 1, 4096) : 1;
  topology.alpha = fields.number("alpha", 0);
  if (fields.has("remote_beta")) {
    topology.remote_alpha = fields.number("remote_alpha", 0);
    topology.remote_beta = fields.number("remote_beta", 0);
    if (topology.remote_beta == 0) fields.refuse("remote_beta", "is 0: a bandwidth without end");
  }
  if (fields.has("links")) {
    read_custom(fields, topology);
    return topology;
  }
  topology.betas = fields.numbers("node_betas_list", 0);
  for (const double beta : topology.betas)
    if (beta == 0) fields.refuse("node_betas_list", "has a 0: a bandwidth without end");
  if (topology.betas.size() > 2 || (topology.betas.size() == 2 && topology.gpus != 8))
    fields.refuse("node_betas_list",
                  "must have one entry, or two for the NVLinks of an NDv2 with 8 GPUs");
  return topology;
}

TacclTopology load_taccl_topology(const std::string& path) {
  return read_taccl_topology(read_text_file(path), path);
}

}  // namespace weft
