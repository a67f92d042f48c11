// Writes the library's warnings to a file while this object lives.
#pragma once

#include <unistd.h>

#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>

#include "tests/support/environment.h"

namespace weft::test {

class LogFile {
 public:
  // `reset` makes the library read its environment again.
  LogFile(const std::string& name, std::function<void()> reset)
      : path_("/tmp/weft-" + name + "." + std::to_string(getpid()) + ".txt"),
        reset_(std::move(reset)) {
    environment_.emplace(std::initializer_list<ScopedEnvironment::Setting>{
        {"NCCL_DEBUG", "WARN"}, {"NCCL_DEBUG_FILE", path_}});
    reset_();
  }
  ~LogFile() {
    environment_.reset();
    reset_();
    unlink(path_.c_str());
  }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path_).rdbuf();
    return out.str();
  }

 private:
  const std::string path_;
  const std::function<void()> reset_;
  std::optional<ScopedEnvironment> environment_;
};

}  // namespace weft::test
