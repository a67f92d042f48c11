// Parses and prints byte counts.
#include "perf/common/sizes.h"

#include <cctype>
#include <cstdlib>

namespace weft::perf {

std::optional<size_t> parse_size(const std::string& text) {
  if (text.empty() || !(std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '.')) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  double unit = 1;
  switch (std::toupper(static_cast<unsigned char>(*end))) {
    case '\0':
      break;
    case 'K':
      unit = 1024.0, ++end;
      break;
    case 'M':
      unit = 1024.0 * 1024, ++end;
      break;
    case 'G':
      unit = 1024.0 * 1024 * 1024, ++end;
      break;
    default:
      return std::nullopt;
  }
  const double bytes = number * unit;
  if (*end != '\0' || !(bytes >= 0 && bytes < 9e15)) return std::nullopt;
  return static_cast<size_t>(bytes);
}

std::string describe_size(size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) bytes /= 1024, ++unit;
  return std::to_string(bytes) + " " + kUnits[unit];
}

}  // namespace weft::perf
