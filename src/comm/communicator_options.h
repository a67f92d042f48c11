// What a rank says when it joins a communicator.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/comm/init_cancel.h"
#include "src/comm/unique_id.h"
#include "src/planner/imported_schedules.h"
#include "src/transport/net_plugins.h"

namespace weft {

struct CommunicatorOptions {
  UniqueId id;
  Branch branch;
  int rank = 0, nranks = 1;
  std::string label;                                 // its name in messages: "rank 3 of 8"
  std::string name;                                  // of the communicator; may be empty
  int device = 0;                                    // this and the next ones are for GPUs only
  int max_ctas = 0;                                  // 0: the value of NCCL_MAX_CTAS
  uint64_t issuer = 0;                               // identifies the thread that makes its calls
  bool copy_engines = false, shares_blocks = false;  // see CommConfig
  NetWish net;
  std::shared_ptr<InitCancel> cancel;                  // nullptr: nobody ends its init
  std::shared_ptr<const ImportedSchedules> schedules;  // set: they replace the environment's
  // Set: this is the communicator of ranks and of hosts that help (helping_hosts.h), and so many of
  // its members are ranks. It takes nothing from the environment that ranks must agree on.
  int helped_ranks = 0;
  // Called on the control thread when a member has gone without a goodbye, with what is known of
  // it.
  std::function<void(int member, const std::string& how)> lost;
};

}  // namespace weft
