// Codecs: how data travels in fewer bytes, or as wider sums. A codec works on blocks of elements of
// a chunk, and its size is known beforehand. Plain values, for host and device.
//
// The bytes of n elements, rounded up to kCodecAlign:
//   int8, int4, fp8   a float scale per block, then 8, 4 or 8 bits per element
//   onebit            a float scale per block (the mean magnitude), then a sign bit per element
//   topk              the kept elements of all blocks, then their places in their blocks (16 bits)
//   widen             a float per element
// A block with a NaN or an infinity decodes to NaNs. Blocks of magnitudes below kCodecFloor decode
// to zeros. All but `widen` encode values of the call's type and decode to values of that type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/host_device.h"

namespace weft {

enum class Codec : uint8_t { kNone, kInt8, kInt4, kFp8, kOneBit, kTopK, kWiden };
inline constexpr int kCodecs = 7;
inline constexpr uint32_t kLeastBlock = 16, kMostBlock = 4096, kUsualBlock = 256;
inline constexpr size_t kCodecAlign = 16;
inline constexpr float kCodecFloor = 0x1p-100f;
// The place of a top-k block's first kept element, if the block has a NaN or an infinity.
inline constexpr uint16_t kPoisonedPlace = 0xffff;

struct CodecSpec {
  Codec kind = Codec::kNone;
  uint32_t block = kUsualBlock;  // elements: a power of two
  double density = 0;            // topk: the share of elements that are kept, in (0,1]
  bool operator==(const CodecSpec&) const = default;

  WEFT_HD bool scaled() const { return kind != Codec::kTopK && kind != Codec::kWiden; }
  // Whether what arrives may differ from what was sent.
  WEFT_HD bool lossy() const { return kind != Codec::kNone && kind != Codec::kWiden; }
  WEFT_HD uint64_t blocks(uint64_t elements) const { return (elements + block - 1) / block; }
  // topk: elements kept of a block of `n`.
  WEFT_HD uint32_t kept(uint32_t n) const {
    const double wanted = density * n;
    const auto k = static_cast<uint32_t>(wanted);
    return static_cast<double>(k) < wanted || k == 0 ? k + 1 : k;
  }
  // topk: elements kept of a run of blocks.
  WEFT_HD uint64_t kept_of(uint64_t elements) const {
    const auto tail = static_cast<uint32_t>(elements % block);
    return elements / block * kept(block) + (tail > 0 ? kept(tail) : 0);
  }
};

// Bytes of `elements` elements of `element` bytes each.
WEFT_HD inline uint64_t encoded_bytes(const CodecSpec& spec, uint64_t elements, uint32_t element) {
  uint64_t bytes = 0;
  switch (spec.kind) {
    case Codec::kNone:
      return elements * element;
    case Codec::kInt8:
    case Codec::kFp8:
      bytes = 4 * spec.blocks(elements) + elements;
      break;
    case Codec::kInt4:
      bytes = 4 * spec.blocks(elements) + (elements + 1) / 2;
      break;
    case Codec::kOneBit:
      bytes = 4 * spec.blocks(elements) + (elements + 7) / 8;
      break;
    case Codec::kTopK:
      bytes = spec.kept_of(elements) * (element + 2u);
      break;
    case Codec::kWiden:
      bytes = 4 * elements;
      break;
  }
  return (bytes + kCodecAlign - 1) / kCodecAlign * kCodecAlign;
}

// "int8", as the tools spell it.
std::string_view name(Codec kind);
std::optional<Codec> parse_codec(std::string_view text);
// "int8:block=256", "topk:block=256:density=0.01". parse_codec_spec() throws
// Error(ncclInvalidArgument) that says what is wrong.
std::string describe(const CodecSpec& spec);
CodecSpec parse_codec_spec(std::string_view text);
// Why a spec is none; empty: it is one.
std::string fault_of(const CodecSpec& spec);

// The most that an element may change when it is encoded, as a share of the largest magnitude in
// its block. `mantissa`: explicit bits of the call's type, 23 for float.
double codec_bound(const CodecSpec& spec, int mantissa);

}  // namespace weft
