// The table row of the engine for small sizes.
#pragma once

#include "algorithms/synth/synthesis.h"

namespace weft {

SynthesisEngine latency_engine();

}  // namespace weft
