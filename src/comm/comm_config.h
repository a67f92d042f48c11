// ncclConfig_t, checked and with defaults filled in.
#pragma once

#include <string>

#include "include/nccl.h"

namespace weft {

struct CommConfig {
  bool blocking = true;
  int min_ctas = 0, max_ctas = 0;  // 0: the library decides
  bool copy_engines = false;       // CTA policy ZERO: copy engines move data, not thread blocks
  bool split_share = false;        // children of splits use its thread blocks
  bool shares_blocks = false;      // it is such a child
  std::string net_name, name;

  // nullptr gives the defaults, or the config of `parent` for split and shrink. Accepts the shorter
  // structs of older versions. Throws Error(ncclInvalidArgument) and names the field.
  static CommConfig from(const ncclConfig_t* config, const CommConfig* parent = nullptr);
};

}  // namespace weft
