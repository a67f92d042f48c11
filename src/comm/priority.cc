// See priority.h.
#include "src/comm/priority.h"

#include <algorithm>

#include "src/base/error.h"

namespace weft {
namespace {

host::Priority parse_priority(std::string_view text) {
  if (text == "high") return host::Priority::kHigh;
  if (text == "normal") return host::Priority::kNormal;
  if (text == "low") return host::Priority::kLow;
  fail(ncclInvalidUsage, "WEFT_PRIORITY: '{}' is not high, normal or low", text);
}

}  // namespace

host::Priority priority_for(std::string_view variable, std::string_view communicator) {
  while (!variable.empty()) {
    const std::string_view part = variable.substr(0, variable.find(';'));
    variable.remove_prefix(std::min(variable.size(), part.size() + 1));
    const size_t slash = part.find('/');
    if (slash == std::string_view::npos) return parse_priority(part);
    const host::Priority priority = parse_priority(part.substr(slash + 1));
    if (part.substr(0, slash) == communicator) return priority;
  }
  return host::Priority::kNormal;
}

}  // namespace weft
