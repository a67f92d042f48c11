#include "src/topology/machine.h"

namespace weft {

std::vector<int> gpus(const Machine& machine) {
  std::vector<int> indices;
  for (size_t i = 0; i < machine.nodes.size(); i++)
    if (machine.nodes[i].type == NodeType::kGpu) indices.push_back(static_cast<int>(i));
  return indices;
}

}  // namespace weft
