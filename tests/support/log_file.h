// Warnings of the library, in a file for as long as this is there. Who uses it makes the library
// look at its environment again (ncclResetDebugInit() or log::reset()).
#pragma once

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/environment.h"

namespace weft::test {

class LogFile {
 public:
  explicit LogFile(const std::string& name)
      : path_("/tmp/weft-" + name + "." + std::to_string(getpid()) + ".txt"),
        environment_{{"NCCL_DEBUG", "WARN"}, {"NCCL_DEBUG_FILE", path_}} {}
  ~LogFile() { unlink(path_.c_str()); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path_).rdbuf();
    return out.str();
  }

 private:
  const std::string path_;
  const ScopedEnvironment environment_;
};

}  // namespace weft::test
