// The catalogue: common machines by name, compiled in as data (machines/*.json). The folder in
// WEFT_CATALOGUE adds machines and replaces those of the same name. Any thread may call all
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/topology/graph/machine.h"

namespace weft {

struct CatalogueText {
  std::string_view name, json;
};
const std::vector<CatalogueText>& catalogue_texts();

// Sorted.
std::vector<std::string> catalogue_names();

// Loads TOPO, as every command accepts it. TOPO is a file of any format, also a cluster
// description, or a name of the catalogue. NAMExN is N hosts, joined through their NICs by a
// non-blocking network ("ndv2x2"). Throws Error with one line that says which forms are accepted.
Machine load_machine(const std::string& topo);

}  // namespace weft
