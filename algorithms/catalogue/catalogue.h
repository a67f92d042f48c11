// The catalogue: machines people have, by name, compiled in as data (machines/*.json). The folder
// in WEFT_CATALOGUE adds machines and replaces those of the same name. All functions may be called
// from any thread.
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

// TOPO as every command takes it: a file (told apart by content; cluster descriptions too), or a
// name of the catalogue, with xN behind it for N hosts joined through their NICs by a network that
// never blocks ("ndv2x2"). Throws Error with one line that says what would have been understood.
Machine load_machine(const std::string& topo);

}  // namespace weft
