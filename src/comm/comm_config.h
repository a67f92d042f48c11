// ncclConfig_t, checked and with defaults filled in.
#pragma once

#include <string>
#include <vector>

#include "include/nccl.h"
#include "src/base/variables.h"
#include "src/transport/net_plugins.h"

namespace weft {

struct CommConfig {
  bool blocking = true;
  int max_ctas = 0;           // 0: the library decides
  bool copy_engines = false;  // CTA policy ZERO: copy engines move data, not thread blocks
  // Children of splits, or of shrinks, use its thread blocks.
  bool split_share = false, shrink_share = false;
  bool shares_blocks = false;  // it is such a child
  NetWish net;
  std::string name;
  std::vector<EnvironmentNote> notes;  // fields that were set and do nothing, with the reason

  // nullptr gives the defaults, or the config of `parent` for split, shrink and grow. A config that
  // is given replaces the parent's: its undefined fields are defaults. Accepts the shorter structs
  // of older versions. Throws Error(ncclInvalidArgument) and names the field.
  static CommConfig from(const ncclConfig_t* config, const CommConfig* parent = nullptr);
};

}  // namespace weft
