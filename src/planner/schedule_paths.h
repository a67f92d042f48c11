// The schedule files that the environment names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/config.h"

namespace weft {

struct SchedulePath {
  std::string path;
  int64_t changed = 0;  // with the size: tells whether the file has changed
  uint64_t size = 0;
};

// Files in the order of their names in the environment, each once. The files of a folder (*.xml and
// *.json) are sorted by name. A missing file is in the list too, so that reading it gives the
// error.
std::vector<SchedulePath> schedule_paths(const Config& config);

}  // namespace weft
