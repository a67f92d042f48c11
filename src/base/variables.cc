// See variables.h.
#include "src/base/variables.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>

#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/regular_file.h"

namespace weft {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Each file is read once in a process, as long as the environment names the same one.
class ConfFiles {
 public:
  static ConfFiles& instance() {
    static ConfFiles& all = *std::make_unique<ConfFiles>().release();  // for exit handlers
    return all;
  }
  std::map<std::string, std::string> values() {
    const char* named = secure_getenv("NCCL_CONF_FILE");
    const char* home = secure_getenv("HOME");
    std::string own;
    if (named != nullptr && *named != '\0')
      own = named;
    else if (home != nullptr)
      own = std::string(home) + "/.nccl.conf";
    std::lock_guard lock(mutex_);
    if (!read_ || own != own_) {
      problems_.clear();
      values_ = read_file(own);
      values_.merge(read_file("/etc/nccl.conf"));
      own_ = own;
      read_ = true;
    }
    return values_;
  }
  std::vector<std::string> problems() {
    values();
    std::lock_guard lock(mutex_);
    return problems_;
  }

 private:
  std::map<std::string, std::string> read_file(const std::string& path) {
    constexpr size_t kMostBytes = 1u << 20;
    try {
      return parse_conf(read_if_readable(path, kMostBytes).value_or(""));
    } catch (const Error& error) {
      problems_.push_back(fmt::format("configuration file {}", error.what()));
      return {};
    }
  }

  std::mutex mutex_;
  bool read_ = false;
  std::string own_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> problems_;
};

bool stands_for(const IdleVariable& idle, const std::string& name) {
  const std::string pattern = idle.name;
  return pattern.back() == '*' ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                               : name == pattern;
}

}  // namespace

std::map<std::string, std::string> parse_conf(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = trimmed(line);
    const size_t equals = line.find('=');
    if (line.empty() || line[0] == '#' || equals == std::string::npos) continue;
    values.emplace(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
  }
  return values;
}

std::optional<std::string> variable(const char* name) {
  if (const char* value = secure_getenv(name)) return value;
  const auto values = ConfFiles::instance().values();
  const auto it = values.find(name);
  if (it == values.end()) return std::nullopt;
  return it->second;
}

std::vector<std::string> conf_file_problems() { return ConfFiles::instance().problems(); }

std::vector<EnvironmentNote> environment_notes(const Config& config) {
  std::map<std::string, std::string> known;
  for (ConfigEntry& entry : describe(config)) known.emplace(entry.name, entry.value);
  std::map<std::string, std::string> set;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; entry++) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) set.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  const char* from = "the environment";
  std::vector<EnvironmentNote> notes;
  const auto note = [&](const std::string& name, const std::string& value) {
    if (!name.starts_with("NCCL_")) return;
    if (known.contains(name)) {
      notes.push_back({fmt::format("{} set by {} to {}", name, from, value)});
      return;
    }
    IdleVariable found{name.c_str(), "Weft does not know it"};
    for (const IdleVariable& idle : idle_variables())
      if (stands_for(idle, name)) {
        found = idle;
        break;
      }
    notes.push_back({fmt::format("{}={} (from {}) has no effect: {}", name, value, from, found.why),
                     found.asks});
  };
  for (const auto& [name, value] : set) note(name, value);
  from = "a configuration file";
  for (const auto& [name, value] : ConfFiles::instance().values())
    if (!set.contains(name)) note(name, value);
  for (const std::string& complaint : config.complaints) notes.push_back({complaint});
  return notes;
}

}  // namespace weft
