// Reports the calls that are launched together on one communicator to the profiler plugin. On GPUs
// it also writes them to the timeline. In host mode the executor writes the timeline.
#pragma once

#include <span>

#include "src/comm/handle.h"

namespace weft {

// Lives from just before the launch until the launch returns. Without observers it costs two
// comparisons.
class Observation {
 public:
  Observation(ncclComm& comm, std::span<const Call* const> calls) : comm_(comm), calls_(calls) {
    if (wanted(comm)) begin();
  }
  static bool wanted(const ncclComm& comm) { return comm.profiler != nullptr || traced(comm); }
  ~Observation() {
    if (begun_) end();
  }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  static bool traced(const ncclComm& comm) {
    return comm.impl->on_gpu() && comm.impl->context().track.id() >= 0;
  }
  void begin();
  void end();
  const char* plan_of(const Call& call) const;

  ncclComm& comm_;
  std::span<const Call* const> calls_;
  bool begun_ = false;
  int64_t begin_ = 0;
};

}  // namespace weft
