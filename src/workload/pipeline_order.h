// In which order a pipeline issues forwards and backwards. A pure function.
#pragma once

#include <vector>

namespace weft::workload {

struct Turn {
  int stage = 0, microbatch = 0;
  bool backward = false;
  auto operator<=>(const Turn&) const = default;
};

// The order within a stage is that of GPipe (all forwards first) or of 1F1B. A turn comes after
// what it needs: the forward of the stage before, or the backward of the stage after.
std::vector<Turn> pipeline_turns(int stages, int microbatches, bool gpipe);

}  // namespace weft::workload
