// Steps with codecs on the host: decode, sum in float, encode.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/exec/datatype.h"
#include "src/schedule/codec.h"

namespace weft::host {

// A message is encoded, if there is a codec. Memory holds values of the type. With a codec it is
// read or written as a receiver of a message with that codec would see it.
struct CodedOperand {
  std::byte* data = nullptr;
  const CodecSpec* codec = nullptr;
  bool message = false;
};

// As combine(), for float32, float16 and bfloat16, and sums only. `residual` (may be nullptr) has a
// float for every element: what earlier calls lost. It is added before the first lossy encoding and
// becomes what that encoding loses.
void combine_coded(const Reduction& reduction, const CodedOperand* sources, uint32_t source_count,
                   uint64_t raw_sources, bool completes, const CodedOperand* destinations,
                   uint32_t destination_count, uint64_t elements, float* residual) noexcept;

}  // namespace weft::host
