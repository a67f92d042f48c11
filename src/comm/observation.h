// Reports the calls that are launched together on one communicator to the profiler plugin.
#pragma once

#include <span>

#include "src/comm/handle.h"

namespace weft {

// Lives from just before the launch until the launch returns. Without a plugin it costs a
// comparison.
class Observation {
 public:
  Observation(ncclComm& comm, std::span<const Call* const> calls) : comm_(comm), calls_(calls) {
    if (wanted(comm)) begin();
  }
  static bool wanted(const ncclComm& comm) { return comm.profiler != nullptr; }
  ~Observation() {
    if (begun_) end();
  }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  void begin();
  void end();

  ncclComm& comm_;
  std::span<const Call* const> calls_;
  bool begun_ = false;
};

}  // namespace weft
