// Encoding and decoding on the host, a run of whole blocks at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "include/nccl.h"
#include "src/schedule/codec.h"

namespace weft::host {

// The encoded bytes of `elements` elements of `type`. See codec.h for the layout.
struct CodedBytes {
  const CodecSpec& spec;
  std::byte* data;  // aligned to kCodecAlign
  uint64_t elements;
  ncclDataType_t type;
};

// The elements from `at` on, `n` of them. `at` begins a block; the end is that of a block or of all
// elements. `values` are values of the type, except for `widen`.
void encode(const CodedBytes& to, uint64_t at, uint32_t n, const float* values) noexcept;
// Does not round to the type.
void decode(const CodedBytes& from, uint64_t at, uint32_t n, float* values) noexcept;

// Rounds floats to values of the type.
void round_to(ncclDataType_t type, float* values, uint32_t n) noexcept;

}  // namespace weft::host
