// What a group does besides its calls of collectives and messages.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "src/comm/handle.h"
#include "src/comm/one_sided.h"

namespace weft {

struct PendingOneSided {
  ncclComm* comm;
  OneSidedCall call;
};

// Launches one-sided calls, those of one communicator in order. In host mode waits come last,
// because this thread may have to signal another of its ranks first.
void launch(std::span<const PendingOneSided> calls);

struct CommunicatorWork {
  ncclComm* comm;
  std::function<void()> work;
};

// Communicators in parallel, because each may wait for others. The work of one in order.
void run_all(const std::vector<CommunicatorWork>& all);

}  // namespace weft
