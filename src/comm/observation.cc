// See observation.h.
#include "src/comm/observation.h"

namespace weft {

void Observation::begin() {
  begun_ = true;
  comm_.profiler->start(calls_, comm_.impl->on_gpu());
}

void Observation::end() {
  if (comm_.profiler != nullptr) comm_.profiler->stop();
}

}  // namespace weft
