// How many bytes a training step moves and keeps, for each kind of parallelism, with the formula.
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "src/workload/model.h"

namespace weft::workload {

struct Volume {
  std::string what;     // "data, ZeRO 3"
  std::string formula;  // in symbols
  std::string numbers;  // the same with numbers in it
  double bytes = 0;     // that a rank sends in a step
  // Of M, the bytes of a rank's parameters, as the ZeRO papers count: (N-1)/N is taken for 1. 0 if
  // M is not the measure.
  double models = 0;
  // What is called, for the time on a machine.
  struct Call {
    CollectiveKind kind;
    double bytes = 0;  // of the whole array
    double times = 0;  // a step
    Instances instances;
  };
  std::vector<Call> calls;
};

struct Memory {
  std::string what, formula;
  double bytes = 0;  // of a rank
};

// One entry per kind of parallelism that the layout has.
std::vector<Volume> volumes(const Model& model, const Layout& layout);
std::vector<Memory> memory(const Model& model, const Layout& layout);

// Microseconds of all calls on the machine, one after the other.
double time_us(const Volume& volume, CommCosts& costs);

}  // namespace weft::workload
