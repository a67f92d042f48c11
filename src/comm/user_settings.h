// What users set on a communicator after its init. The handle keeps it, so that a communicator has
// it again after ncclCommResume.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "src/exec/host/turns.h"
#include "src/schedule/collective_kind.h"

namespace weft {

class Communicator;
struct Generator;

// Nothing: as in the environment.
struct UserSettings {
  std::optional<host::Priority> priority;
  std::optional<std::string> compression;
  std::map<CollectiveKind, const Generator*> plans;  // forced ones; nullptr: the agreed plan
};

// Collective if compression is set. Throws Error.
void apply(const UserSettings& settings, Communicator& communicator);

}  // namespace weft
