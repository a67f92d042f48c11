// The table row of the engine for TACCL's pipeline (algorithms/synth/taccl/taccl.h).
#pragma once

#include "algorithms/synth/synthesis.h"

namespace weft {

SynthesisEngine taccl_engine();

}  // namespace weft
