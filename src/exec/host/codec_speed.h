// How fast this core encodes and decodes.
#pragma once

#include "src/schedule/codec.h"

namespace weft::host {

// Microseconds per megabyte (1e6 bytes) of float32 data. Takes some milliseconds.
struct CodecSpeed {
  double encode_us_mb = 0, decode_us_mb = 0;
};
CodecSpeed measure_codec(const CodecSpec& spec);

}  // namespace weft::host
