// SipHash-2-4, a fast keyed hash for fingerprints and identities. Secrets are proved with
// src/base/secret.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/secret.h"

namespace weft {

uint64_t siphash(const Secret& key, const void* data, size_t size);

}  // namespace weft
