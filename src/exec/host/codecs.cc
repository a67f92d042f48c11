// See codecs.h. The loops over a block are written so that compilers vectorize them.
#include "src/exec/host/codecs.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "src/exec/codec_math.h"
#include "src/exec/datatype.h"
#include "src/exec/host/numbers.h"

namespace weft::host {
namespace {

uint32_t largest_bits(const float* values, uint32_t n) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < n; i++)
    largest = std::max(largest, codec::bits_of(values[i]) & codec::kMagnitude);
  return largest;
}

// With a scale of 0 or NaN all codes are those of 0.
void encode_int8(const float* values, uint32_t n, float scale, std::byte* codes) {
  auto* out = reinterpret_cast<int8_t*>(codes);
#pragma GCC ivdep
  for (uint32_t i = 0; i < n; i++) out[i] = codec::int8_code(values[i], scale);
}

void encode_int4(const float* values, uint32_t n, float scale, std::byte* codes) {
  auto* out = reinterpret_cast<uint8_t*>(codes);
#pragma GCC ivdep
  for (uint32_t i = 0; i < n / 2; i++)
    out[i] = static_cast<uint8_t>(codec::int4_code(values[2 * i], scale) |
                                  codec::int4_code(values[2 * i + 1], scale) << 4);
  if (n % 2 != 0) out[n / 2] = codec::int4_code(values[n - 1], scale);
}

void encode_fp8(const float* values, uint32_t n, float scale, std::byte* codes) {
  auto* out = reinterpret_cast<uint8_t*>(codes);
#pragma GCC ivdep
  for (uint32_t i = 0; i < n; i++) out[i] = codec::fp8_code(values[i], scale);
}

void encode_signs(const float* values, uint32_t n, std::byte* codes) {
  auto* out = reinterpret_cast<uint8_t*>(codes);
  for (uint32_t i = 0; i < n; i += 8) {
    uint32_t byte = 0;
    for (uint32_t j = 0; j < 8 && i + j < n; j++) byte |= codec::bits_of(values[i + j]) >> 31 << j;
    out[i / 8] = static_cast<uint8_t>(byte);
  }
}

float mean_magnitude(const float* values, uint32_t n) {
  float columns[codec::kMeanColumns] = {};
  const float share = codec::quotient(1.0f, static_cast<float>(n));
  const auto term = [&](uint32_t i) {
    return codec::product(codec::float_of(codec::bits_of(values[i]) & codec::kMagnitude), share);
  };
  uint32_t i = 0;
  for (; i + codec::kMeanColumns <= n; i += codec::kMeanColumns)
    for (uint32_t j = 0; j < codec::kMeanColumns; j++)
      columns[j] = codec::sum(columns[j], term(i + j));
  for (uint32_t j = 0; i + j < n; j++) columns[j] = codec::sum(columns[j], term(i + j));
  float mean = columns[0];
  for (uint32_t j = 1; j < codec::kMeanColumns; j++) mean = codec::sum(mean, columns[j]);
  return mean;
}

float onebit_scale(const float* values, uint32_t n) {
  const uint32_t largest = largest_bits(values, n);
  if (largest >= codec::kInfinity) return codec::float_of(codec::kNan);
  return codec::float_of(largest) < kCodecFloor ? 0.0f : mean_magnitude(values, n);
}

// Where codes of element `at` begin: after all scales.
std::byte* codes_at(const CodedBytes& bytes, uint64_t at) {
  std::byte* codes = bytes.data + 4 * bytes.spec.blocks(bytes.elements);
  switch (bytes.spec.kind) {
    case Codec::kInt4:
      return codes + at / 2;
    case Codec::kOneBit:
      return codes + at / 8;
    default:
      return codes + at;
  }
}

template <typename Type>
void round_all(float* values, uint32_t n) {
#pragma GCC ivdep
  for (uint32_t i = 0; i < n; i++) values[i] = Type::load(Type::store(values[i]));
}

// The kept elements of a block, and their places.
struct Kept {
  std::byte* values;
  std::byte* places;
  uint32_t count;
};

Kept kept_at(const CodedBytes& bytes, uint64_t at, uint32_t n) {
  const uint64_t before = at / bytes.spec.block * bytes.spec.kept(bytes.spec.block);
  const size_t element = element_size(bytes.type);
  return {bytes.data + before * element,
          bytes.data + bytes.spec.kept_of(bytes.elements) * element + 2 * before,
          bytes.spec.kept(n)};
}

void put(const Kept& to, uint32_t k, ncclDataType_t type, float value, uint16_t place) {
  std::memcpy(to.places + size_t{2} * k, &place, sizeof place);
  if (type == ncclFloat32) {
    std::memcpy(to.values + size_t{4} * k, &value, sizeof value);
    return;
  }
  const uint16_t element = type == ncclFloat16 ? Half::store(value) : BFloat16::store(value);
  std::memcpy(to.values + size_t{2} * k, &element, sizeof element);
}

float kept_value(const Kept& from, uint32_t k, ncclDataType_t type) {
  float value = 0;
  if (type == ncclFloat32) {
    std::memcpy(&value, from.values + size_t{4} * k, sizeof value);
    return value;
  }
  uint16_t element = 0;
  std::memcpy(&element, from.values + size_t{2} * k, sizeof element);
  return type == ncclFloat16 ? Half::load(element) : BFloat16::load(element);
}

// The largest magnitudes, the first of equal ones, in the order of their places.
void encode_topk(const Kept& to, const float* values, uint32_t n, ncclDataType_t type) {
  if (largest_bits(values, n) >= codec::kInfinity) {
    for (uint32_t k = 0; k < to.count; k++)
      put(to, k, type, codec::float_of(codec::kNan), kPoisonedPlace);
    return;
  }
  uint64_t order[kMostBlock];
  for (uint32_t i = 0; i < n; i++)
    order[i] = uint64_t{codec::bits_of(values[i]) & codec::kMagnitude} << 16 | (0xffffu - i);
  std::nth_element(order, order + to.count - 1, order + n, std::greater<>());
  for (uint32_t k = 0; k < to.count; k++) order[k] = 0xffffu - (order[k] & 0xffffu);
  std::sort(order, order + to.count);
  for (uint32_t k = 0; k < to.count; k++)
    put(to, k, type, values[order[k]], static_cast<uint16_t>(order[k]));
}

void decode_topk(const Kept& from, float* values, uint32_t n, ncclDataType_t type) {
  std::fill_n(values, n, 0.0f);
  for (uint32_t k = 0; k < from.count; k++) {
    uint16_t place = 0;
    std::memcpy(&place, from.places + size_t{2} * k, sizeof place);
    if (place == kPoisonedPlace) {
      std::fill_n(values, n, codec::float_of(codec::kNan));
      return;
    }
    if (place < n) values[place] = kept_value(from, k, type);
  }
}

// Stands for blocks whose scale is 0 or NaN: the signs of NaNs differ between machines, and 0 times
// an infinity is no code.
constexpr float kZeros[kMostBlock] = {};

void encode_block(const CodedBytes& to, uint64_t at, uint32_t n, const float* values) {
  const Codec kind = to.spec.kind;
  if (kind == Codec::kTopK) return encode_topk(kept_at(to, at, n), values, n, to.type);
  std::byte* codes = codes_at(to, at);
  float scale = 0;
  if (kind == Codec::kOneBit) {
    scale = onebit_scale(values, n);
    encode_signs(scale > 0 ? values : kZeros, n, codes);
  } else {
    const codec::Scales scales = codec::scales_of(kind, largest_bits(values, n));
    scale = scales.decode;
    const float* from = scales.encode == 0 ? kZeros : values;
    if (kind == Codec::kInt8) encode_int8(from, n, scales.encode, codes);
    if (kind == Codec::kInt4) encode_int4(from, n, scales.encode, codes);
    if (kind == Codec::kFp8) encode_fp8(from, n, scales.encode, codes);
  }
  std::memcpy(to.data + at / to.spec.block * 4, &scale, sizeof scale);
}

void decode_block(const CodedBytes& from, uint64_t at, uint32_t n, float* values) {
  const Codec kind = from.spec.kind;
  if (kind == Codec::kTopK) return decode_topk(kept_at(from, at, n), values, n, from.type);
  const auto* codes = reinterpret_cast<const uint8_t*>(codes_at(from, at));
  float scale = 0;
  std::memcpy(&scale, from.data + at / from.spec.block * 4, sizeof scale);
  if (kind == Codec::kInt8) {
    for (uint32_t i = 0; i < n; i++)
      values[i] = codec::product(static_cast<float>(static_cast<int8_t>(codes[i])), scale);
  } else if (kind == Codec::kInt4) {
    for (uint32_t i = 0; i < n / 2; i++) {
      values[2 * i] = codec::product(codec::int4_value(codes[i]), scale);
      values[2 * i + 1] = codec::product(codec::int4_value(codes[i] >> 4), scale);
    }
    if (n % 2 != 0) values[n - 1] = codec::product(codec::int4_value(codes[n / 2]), scale);
  } else if (kind == Codec::kFp8) {
    for (uint32_t i = 0; i < n; i++) values[i] = codec::product(codec::fp8_value(codes[i]), scale);
  } else {
    for (uint32_t i = 0; i < n; i++)
      values[i] = codec::onebit_value((codes[i / 8] >> i % 8 & 1) != 0, scale);
  }
}

}  // namespace

void encode(const CodedBytes& to, uint64_t at, uint32_t n, const float* values) noexcept {
  if (to.spec.kind == Codec::kWiden) {
    std::memcpy(to.data + 4 * at, values, size_t{4} * n);
    return;
  }
  for (uint32_t i = 0; i < n; i += to.spec.block)
    encode_block(to, at + i, std::min(to.spec.block, n - i), values + i);
}

void decode(const CodedBytes& from, uint64_t at, uint32_t n, float* values) noexcept {
  if (from.spec.kind == Codec::kWiden) {
    std::memcpy(values, from.data + 4 * at, size_t{4} * n);
    return;
  }
  for (uint32_t i = 0; i < n; i += from.spec.block)
    decode_block(from, at + i, std::min(from.spec.block, n - i), values + i);
}

void round_to(ncclDataType_t type, float* values, uint32_t n) noexcept {
  if (type == ncclFloat16) round_all<Half>(values, n);
  if (type == ncclBfloat16) round_all<BFloat16>(values, n);
}

}  // namespace weft::host
