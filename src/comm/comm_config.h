// ncclConfig_t, checked and with defaults filled in.
#pragma once

#include <string>

#include "include/nccl.h"

namespace weft {

struct CommConfig {
  bool blocking = true;
  int min_ctas = 0, max_ctas = 0;  // 0: as the library likes
  bool copy_engines = false;       // CTA policy ZERO: no thread blocks only to move data
  std::string net_name, name;

  // nullptr gives the defaults (or `parent`, for communicators made from another). Older, shorter
  // structs are accepted. Throws Error(ncclInvalidArgument) naming the field.
  static CommConfig from(const ncclConfig_t* config, const CommConfig* parent = nullptr);
};

}  // namespace weft
