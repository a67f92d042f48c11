// Texts for verbs' codes, with the usual causes.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace weft::net_verbs {

// A failed work request: what happened, and the usual cause.
struct Explanation {
  const char* what;
  const char* cause;
};
Explanation explain(ibv_wc_status status);

// Whether a new connection may help: the path to the peer failed, not the request itself.
bool is_link_trouble(ibv_wc_status status);

// An asynchronous event; `what` is nullptr for events that need no text.
Explanation explain(ibv_event_type event);

// Why memory could not be registered.
std::string explain_registration(int error, size_t bytes, bool cuda);

}  // namespace weft::net_verbs
