// Regular expressions for messages. They are POSIX's: std::regex takes ten seconds to compile.
#pragma once

#include <regex.h>

#include <stdexcept>
#include <string>

namespace weft::test {

// Whether an extended regular expression matches a part of the text.
inline bool says(const std::string& text, const char* pattern) {
  regex_t compiled;
  if (regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0)
    throw std::invalid_argument(pattern);
  const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

}  // namespace weft::test
