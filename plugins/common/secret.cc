// See secret.h.
#include "plugins/common/secret.h"

#include <cstring>

namespace weft::net_common {
namespace {

thread_local std::optional<Secret> current;

}  // namespace

const std::optional<Secret>& thread_secret() { return current; }

void use_secret(const unsigned char* secret) {
  current.reset();
  if (secret == nullptr) return;
  current.emplace();
  std::memcpy(current->data(), secret, current->size());
}

}  // namespace weft::net_common
