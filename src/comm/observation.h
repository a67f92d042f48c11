// Tells whoever watches of calls that are launched together on one communicator: the profiler
// plugin, and for GPUs the timeline (in host mode the executor itself writes it).
#pragma once

#include <span>

#include "src/comm/handle.h"

namespace weft {

// From just before the launch until it returned. Costs two comparisons when nobody watches.
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

  ncclComm& comm_;
  std::span<const Call* const> calls_;
  bool begun_ = false;
  int64_t begin_ = 0;
};

}  // namespace weft
