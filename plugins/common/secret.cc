// See secret.h.
#include "plugins/common/secret.h"

#include <cstring>

namespace weft::net_common {
namespace {

thread_local std::optional<Secret> current;
thread_local std::optional<Wire> current_wire;

}  // namespace

const std::optional<Secret>& thread_secret() { return current; }

void use_secret(const unsigned char* secret) {
  current.reset();
  if (secret == nullptr) return;
  current.emplace();
  std::memcpy(current->data(), secret, current->size());
}

const std::optional<Wire>& thread_wire() { return current_wire; }

void use_wire(int wire) {
  current_wire.reset();
  if (wire >= 0) current_wire = static_cast<Wire>(wire);
}

}  // namespace weft::net_common
