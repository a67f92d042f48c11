// The row of the table of synthesis engines for TACCL's pipeline (algorithms/synth/taccl/taccl.h).
#pragma once

#include "algorithms/synth/synthesis.h"

namespace weft {

SynthesisEngine taccl_engine();

}  // namespace weft
