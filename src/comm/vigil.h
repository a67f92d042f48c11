// What keeps the ranks of a communicator from waiting in vain.
#pragma once

#include <memory>
#include <mutex>

#include "src/comm/fault_state.h"
#include "src/comm/peer_watch.h"
#include "src/comm/stall_exchange.h"
#include "src/transport/timer.h"

namespace weft {

struct Vigil {
  FaultState faults;
  std::mutex mutex;  // protects what the control thread reads while a constructor sets it
  std::shared_ptr<PeerWatch> watch;       // nullptr: there is only one rank, or it comes later
  std::unique_ptr<StallExchange> stalls;  // with the watch; control thread only
  std::unique_ptr<Timer> patience;        // runs after a rank has died; control thread only
  std::unique_ptr<Timer> gpu_errors;      // runs after a rank has left; control thread only
};

}  // namespace weft
