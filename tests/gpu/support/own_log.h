// The log of this process, for scenarios with NCCL_DEBUG_FILE.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace weft::test {

// NCCL_DEBUG_FILE ends in %p. The file is removed.
inline std::string own_log() {
  std::string path = std::getenv("NCCL_DEBUG_FILE");
  path.replace(path.rfind("%p"), 2, std::to_string(getpid()));
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::remove(path.c_str());
  return text;
}

}  // namespace weft::test
