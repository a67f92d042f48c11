// The synthesizer as init uses it: a library beside ours (libweft-synthesis.so), loaded when
// needed. Thread-safe functions.
#pragma once

#include <optional>
#include <string>

#include "src/base/config.h"
#include "src/schedule/collective.h"
#include "src/topology/graph/machine.h"

namespace weft {

// Whether there is one; a line of log says why not, once.
bool can_synthesize(const Config& config);

struct SynthesizedText {
  std::string text;        // Weft JSON
  bool cut_short = false;  // with more time there might be a better one
};

// A schedule for all GPUs of the machine, root 0; `seconds` 0: the first that can be made, which
// nobody has proved. nullopt: none was found; the reason is in the log.
std::optional<SynthesizedText> synthesize_apart(const Config& config, const Machine& machine,
                                                CollectiveKind kind, double bytes, double seconds);

}  // namespace weft
