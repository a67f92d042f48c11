// What verbs' codes mean, in words, and what usually causes them.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace weft::net_verbs {

// A work request that ended badly: what happened, and the usual cause.
struct Explanation {
  const char* what;
  const char* cause;
};
Explanation explain(ibv_wc_status status);

// Whether a new connection may cure it: the way to the peer was at fault, not what was asked.
bool is_link_trouble(ibv_wc_status status);

// An asynchronous event; `what` is nullptr for those that need no words.
Explanation explain(ibv_event_type event);

// Why memory could not be registered.
std::string explain_registration(int error, size_t bytes, bool cuda);

}  // namespace weft::net_verbs
