// The table row of the forest engine.
#pragma once

#include "algorithms/synth/synthesis.h"

namespace weft {

SynthesisEngine forest_engine();

}  // namespace weft
