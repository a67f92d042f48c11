// The table row of the engine for all-to-all, gather and scatter.
#pragma once

#include "algorithms/synth/synthesis.h"

namespace weft {

SynthesisEngine flow_engine();

}  // namespace weft
