// What WEFT_COMPRESS and weftCommSetCompression() say. See compression.h.
#include <algorithm>

#include "src/base/error.h"
#include "src/planner/compression.h"

namespace weft {
namespace {

// Cuts off and returns what is before the separator.
std::string_view next_part(std::string_view& text, char separator) {
  const std::string_view part = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

CompressionRule parse_rule(CollectiveKind kind, std::string_view text) {
  CompressionRule rule;
  constexpr std::string_view kFeedback = ":feedback";
  std::string codec(text);
  if (const size_t at = codec.find(kFeedback); at != std::string::npos) {
    rule.feedback = true;
    codec.erase(at, kFeedback.size());
  }
  rule.codec = parse_codec_spec(codec);
  const bool sums = kind != CollectiveKind::kAllGather;
  const bool sparse = rule.codec.kind == Codec::kOneBit || rule.codec.kind == Codec::kTopK;
  if (rule.feedback && !sums)
    fail(ncclInvalidArgument, "compression: feedback is for sums, not for {}", name(kind));
  if (sparse && !sums)
    fail(ncclInvalidArgument, "compression: {} is for sums, not for {}", name(rule.codec.kind),
         name(kind));
  if (rule.codec.kind == Codec::kWiden && !sums)
    fail(ncclInvalidArgument, "compression: widen is for sums, not for {}", name(kind));
  if (sparse && !rule.feedback)
    fail(ncclInvalidArgument, "compression: {} needs feedback, as in {}={}:feedback",
         name(rule.codec.kind), name(kind), text);
  return rule;
}

}  // namespace

bool CompressionSettings::has_rules() const {
  return std::any_of(rules.begin(), rules.end(), [](const auto& rule) { return rule.has_value(); });
}

CompressionSettings CompressionSettings::parse(std::string_view text) {
  CompressionSettings settings;
  if (text.empty() || text == "off") return settings;
  if (text == "auto") {
    settings.automatic = true;
    for (const CollectiveKind kind : kCompressedKinds)
      settings.rules[static_cast<size_t>(kind)] = CompressionRule{parse_codec_spec("int8")};
    return settings;
  }
  while (!text.empty()) {
    const std::string_view entry = next_part(text, ',');
    if (entry == "imported") {
      settings.imported = true;
      continue;
    }
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos)
      fail(ncclInvalidArgument, "compression: '{}' is not off, auto, imported or collective=codec",
           entry);
    const auto kind = parse_collective(entry.substr(0, equals));
    if (!kind || std::find(std::begin(kCompressedKinds), std::end(kCompressedKinds), *kind) ==
                     std::end(kCompressedKinds))
      fail(ncclInvalidArgument,
           "compression: '{}' is none of all_reduce, all_gather and reduce_scatter",
           entry.substr(0, equals));
    auto& rule = settings.rules[static_cast<size_t>(*kind)];
    if (rule) fail(ncclInvalidArgument, "compression: a second codec for {}", name(*kind));
    rule = parse_rule(*kind, entry.substr(equals + 1));
  }
  return settings;
}

std::string compression_for(std::string_view variable, std::string_view communicator) {
  while (!variable.empty()) {
    std::string_view part = next_part(variable, ';');
    if (part.find('/') == std::string_view::npos) return std::string(part);
    if (next_part(part, '/') == communicator) return std::string(part);
  }
  return "off";
}

}  // namespace weft
