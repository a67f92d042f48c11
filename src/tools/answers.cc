// See answers.h.
#include "src/tools/answers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace weft {

std::optional<CollectiveKind> collective_named(const std::string& text) {
  return text.empty() ? std::nullopt : parse_collective(text);
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
  return std::strtod(fmt::format("{:.12g}", value).c_str(), nullptr);
}

std::string duration(double us) {
  if (us < 1e3) return fmt::format("{:.4g} us", us);
  if (us < 1e6) return fmt::format("{:.4g} ms", us * 1e-3);
  return fmt::format("{:.4g} s", us * 1e-6);
}

}  // namespace weft
