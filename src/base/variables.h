// Where the values of environment variables come from: the environment, or NCCL's configuration
// files (NCCL_CONF_FILE, else ~/.nccl.conf; then /etc/nccl.conf). Only Config asks; any thread may.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

struct Config;

// The value of a variable. The environment goes before files, the user's file before the system's.
std::optional<std::string> variable(const char* name);

// A text for each configuration file that is there but cannot be used: a FIFO, or a huge one.
std::vector<std::string> conf_file_problems();

// KEY=VALUE lines as NCCL reads them: '#' begins a comment line, blanks around a key do not count.
std::map<std::string, std::string> parse_conf(const std::string& text);

// A variable of NCCL's, or of something around it, that does nothing here, and why.
struct IdleVariable {
  const char* name;  // ends in '*' when it stands for a family
  const char* why;
  bool asks = false;  // for something that its user would miss: that is worth a warning
};
const std::vector<IdleVariable>& idle_variables();

// For the log, a line for each NCCL_* variable that is set: taken with its value, without effect
// and why, or unknown; and one for each value that could not be read.
struct EnvironmentNote {
  std::string text;
  bool warns = false;
};
std::vector<EnvironmentNote> environment_notes(const Config& config);

}  // namespace weft
