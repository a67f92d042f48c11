// Which schedule files the environment names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/config.h"

namespace weft {

struct SchedulePath {
  std::string path;
  int64_t changed = 0;  // with the size: tells whether it is still the same file
  uint64_t size = 0;
};

// Files in the order in which they are named, those of a folder (*.xml and *.json) by name; each
// once. A name that leads nowhere is in the list too, so that reading it says so.
std::vector<SchedulePath> schedule_paths(const Config& config);

}  // namespace weft
