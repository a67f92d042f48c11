// The row of the table of engines for the forest packer.
#pragma once

#include "algorithms/synth/synthesis.h"

namespace weft {

SynthesisEngine forest_engine();

}  // namespace weft
