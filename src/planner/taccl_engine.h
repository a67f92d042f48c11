// The row of the table of synthesis engines for TACCL's pipeline (algorithms/synth/taccl.h).
#pragma once

#include "src/planner/synthesis.h"

namespace weft {

SynthesisEngine taccl_engine();

}  // namespace weft
