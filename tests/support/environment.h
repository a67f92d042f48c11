// Sets environment variables for the length of a scope.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace weft::test {

// Sets variables (nullopt unsets one) and restores the old values at the end. No other thread may
// read the environment while this object is made or destroyed.
class ScopedEnvironment {
 public:
  using Setting = std::pair<std::string, std::optional<std::string>>;

  ScopedEnvironment(std::initializer_list<Setting> settings) {
    for (const auto& [name, value] : settings) {
      const char* old = std::getenv(name.c_str());
      saved_.emplace(name, old != nullptr ? std::optional<std::string>(old) : std::nullopt);
      put(name, value);
    }
  }
  ~ScopedEnvironment() {
    for (const auto& [name, value] : saved_) put(name, value);
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  static void put(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }
  std::map<std::string, std::optional<std::string>> saved_;
};

}  // namespace weft::test
