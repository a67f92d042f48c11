// See user_settings.h.
#include "src/comm/user_settings.h"

#include "src/comm/communicator.h"

namespace weft {

void apply(const UserSettings& settings, Communicator& communicator) {
  if (settings.priority) communicator.set_priority(*settings.priority);
  for (const auto& [kind, generator] : settings.plans) communicator.force_plan(kind, generator);
  if (settings.compression) communicator.set_compression(*settings.compression);
}

}  // namespace weft
