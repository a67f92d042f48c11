// The synthesizer for init: libweft-synthesis.so, a separate library that is loaded when needed.
// Thread-safe functions.
#pragma once

#include <optional>
#include <string>

#include "src/base/config.h"
#include "src/schedule/collective.h"
#include "src/simulator/lane_cut.h"
#include "src/topology/graph/machine.h"

namespace weft {

// Whether the library is there. If not, one log line says why.
bool can_synthesize(const Config& config);

struct SynthesizedText {
  std::string text;        // Weft JSON
  bool cut_short = false;  // with more time there might be a better one
};

// A schedule for all GPUs of the machine, root 0. Without costs only links count. `seconds` 0: the
// first one possible, not yet proved. nullopt: none was found; the log says why.
std::optional<SynthesizedText> synthesize_apart(const Config& config, const Machine& machine,
                                                CollectiveKind kind, double bytes,
                                                const std::optional<LaneCosts>& costs,
                                                double seconds);

}  // namespace weft
