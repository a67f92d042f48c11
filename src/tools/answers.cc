// See answers.h.
#include "src/tools/answers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string_view>

#include "src/base/error.h"

namespace weft {

double size_named(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  std::string_view unit(end);
  double factor = 1;
  if (!unit.empty()) {
    const size_t power = std::string_view("KMGT").find(
        static_cast<char>(std::toupper(static_cast<unsigned char>(unit.front()))));
    if (power != std::string_view::npos) {
      factor = std::pow(1024.0, static_cast<double>(power) + 1);
      unit.remove_prefix(1);
    }
    if (unit == "B" || unit == "iB") unit = {};
  }
  const double bytes = value * factor;
  if (end == text.c_str() || !unit.empty() || !std::isfinite(bytes) || bytes < 0 || bytes > 1e18)
    fail(ncclInvalidArgument, "'{}' is no size (64K, 1M, 2G, or bytes)", text);
  return std::floor(bytes);
}

CollectiveKind collective_named(const std::string& text) {
  if (const auto kind = parse_collective(text)) return *kind;
  std::string known;
  for (int kind = 0; kind < kCollectiveKinds; kind++)
    known += fmt::format("{}{}", kind > 0 ? ", " : "", name(static_cast<CollectiveKind>(kind)));
  fail(ncclInvalidArgument, "'{}' is no collective ({})", text, known);
}

double busbw_factor(const Collective& collective) {
  const double n = collective.nranks;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

nlohmann::ordered_json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

std::string duration(double us) {
  if (us < 1e3) return fmt::format("{:.4g} us", us);
  if (us < 1e6) return fmt::format("{:.4g} ms", us * 1e-3);
  return fmt::format("{:.4g} s", us * 1e-6);
}

}  // namespace weft
