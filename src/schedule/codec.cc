// See codec.h.
#include "src/schedule/codec.h"

#include <array>
#include <charconv>
#include <cmath>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, kCodecs> kCodecNames = {"none",   "int8", "int4", "fp8",
                                                               "onebit", "topk", "widen"};

template <typename Number>
Number number_of(std::string_view text, std::string_view option) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(ncclInvalidArgument, "codec option {}: '{}' is no number", option, text);
  return value;
}

}  // namespace

std::string_view name(Codec kind) { return kCodecNames[static_cast<size_t>(kind)]; }

std::optional<Codec> parse_codec(std::string_view text) {
  for (size_t i = 1; i < kCodecNames.size(); i++)
    if (kCodecNames[i] == text) return static_cast<Codec>(i);
  return std::nullopt;
}

std::string fault_of(const CodecSpec& spec) {
  if (spec.kind == Codec::kNone) return "it has no kind";
  if (spec.block < kLeastBlock || spec.block > kMostBlock || (spec.block & (spec.block - 1)) != 0)
    return fmt::format("block {}, must be a power of two from {} to {}", spec.block, kLeastBlock,
                       kMostBlock);
  if (spec.kind == Codec::kTopK && !(spec.density > 0 && spec.density <= 1))
    return fmt::format("density {}, must be above 0 and at most 1", spec.density);
  if (spec.kind != Codec::kTopK && spec.density != 0) return "only topk has a density";
  return "";
}

std::string describe(const CodecSpec& spec) {
  std::string text(name(spec.kind));
  if (spec.kind != Codec::kWiden) text += fmt::format(":block={}", spec.block);
  if (spec.kind == Codec::kTopK) text += fmt::format(":density={}", spec.density);
  return text;
}

CodecSpec parse_codec_spec(std::string_view text) {
  CodecSpec spec;
  const std::string_view all = text;
  for (bool first = true; first || !text.empty(); first = false) {
    const std::string_view part = text.substr(0, text.find(':'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    if (first) {
      const auto kind = parse_codec(part);
      if (!kind)
        fail(ncclInvalidArgument,
             "'{}' is no codec: there are int8, int4, fp8, onebit, topk and widen", part);
      spec.kind = *kind;
      if (spec.kind == Codec::kTopK) spec.density = 0.01;
    } else if (part.starts_with("block=")) {
      spec.block = number_of<uint32_t>(part.substr(6), "block");
    } else if (part.starts_with("density=")) {
      spec.density = number_of<double>(part.substr(8), "density");
    } else {
      fail(ncclInvalidArgument, "codec '{}': there is no option '{}'", all, part);
    }
  }
  if (const std::string why = fault_of(spec); !why.empty())
    fail(ncclInvalidArgument, "codec '{}': {}", all, why);
  return spec;
}

double codec_bound(const CodecSpec& spec, int mantissa) {
  // Half a step of the largest magnitude. Scales and products are rounded to float, and the result
  // to the call's type.
  const double rounded = std::ldexp(1.0, -1 - mantissa) + std::ldexp(1.0, -21);
  switch (spec.kind) {
    case Codec::kInt8:
      return 1.0 / 254 + rounded;
    case Codec::kInt4:
      return 1.0 / 14 + rounded;
    case Codec::kFp8:
      return 1.0 / 28 + rounded;
    case Codec::kOneBit:
    case Codec::kTopK:
      return 1.0 + rounded;
    default:
      return 0;
  }
}

}  // namespace weft
