// The solver of the CBC plugin, for tests that need a correct solver.
#pragma once

#include <memory>
#include <string>

#include "algorithms/synth/taccl/solver.h"

namespace weft::test {

inline std::shared_ptr<const Solver> cbc() {
  return Solver::load(std::string(WEFT_TEST_PLUGINS) + "/libweft-solver-cbc.so");
}

}  // namespace weft::test
