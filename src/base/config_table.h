// The table of environment variables: one row each. Config is read from it, and `weft env` and
// docs/environment.md are written from it. Plain data; any thread may read it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "src/base/config.h"

namespace weft {

// The member that a variable sets. Its type says how the value is read:
// - text is taken as it is, and an empty value keeps the default;
// - optional text is taken even when it is empty;
// - bool is a number, and every number but 0 is true;
// - int and size_t are whole numbers, in base 8, 10 or 16, with K, M or G behind them;
// - double is a number of seconds, between the limits of its row.
// A negative size_t is an error: no size has a meaning below 0.
// A number with anything else behind it is an error when a communicator is made.
using ConfigMember =
    std::variant<std::string Config::*, std::optional<std::string> Config::*, bool Config::*,
                 int Config::*, size_t Config::*, double Config::*>;

// What else holds for the value of one variable.
struct ValueRules {
  bool secret = false;                       // never printed
  size_t at_least = 0;                       // bytes: a smaller value is raised to this
  double least_s = 0, most_s = 1e9;          // seconds: others are an error. 1e18 ns fit a clock.
  std::span<const char* const> one_of = {};  // text: every other value is an error
};

struct ConfigVariable {
  const char* name;
  ConfigMember member;
  const char* meaning;
  ValueRules rules = {};
};

// In the order in which they are read: where two rows set one member, the later row wins.
std::span<const ConfigVariable> config_variables();

}  // namespace weft
