// The row of the table of engines for plans of small sizes.
#pragma once

#include "algorithms/synth/synthesis.h"

namespace weft {

SynthesisEngine latency_engine();

}  // namespace weft
