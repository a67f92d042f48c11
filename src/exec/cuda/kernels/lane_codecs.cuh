// Steps with codecs in a lane: decode, sum in float, encode. A thread does a block of elements by
// itself, eight elements at a time. The bits are those of src/exec/host/combine_coded.h.
#pragma once

#include "src/exec/codec_math.h"
#include "src/exec/cuda/kernels/lane_packets.cuh"

namespace weft::cuda {

// Kernels of these types have the code: not 8-bit floats. Sums only.
template <typename Type>
concept SumsInFloat = std::is_same_v<typename Type::Accumulator, float>;
template <typename Type>
concept CodedType = SumsInFloat<Type> &&(sizeof(typename Type::Element) > 1);
template <typename Type, typename Op>
inline constexpr bool kRunsCodecs = kSums<Op>&& CodedType<Type>;

template <typename Type>
class CodedBlock {
 public:
  using Element = typename Type::Element;
  static constexpr uint32_t kGroup = 8;

  // The block from element `begin` on, of `n` elements.
  __device__ CodedBlock(const LaneArguments& a, const LaneMovement& m, uint64_t begin, uint32_t n)
      : a_(a), m_(m), begin_(begin), n_(n) {
    const uint8_t only = m.operands[0].codec;
    if (m.source_count == 1) passed_ = only;
    passes_message_ = passed_ != 0 && m.operands[0].kind == LaneOperand::kMessage;
    for (uint32_t d = 0; d < m.destination_count && passed_ == 0 && m.losses != nullptr; d++) {
      const uint8_t codec = destination(d).codec;
      if (lossy_ == 0 && codec != 0 && spec(codec).lossy()) lossy_ = codec;
    }
  }

  __device__ void move() {
    scale_up();
    float values[kGroup];
    for (uint32_t g = 0; g < n_; g += kGroup) {
      const uint32_t count = n_ - g < kGroup ? n_ - g : kGroup;
      sum(g, count, values);
      pick(g, count, values);
      for (uint32_t d = 0; d < m_.destination_count; d++) write(d, g, count, values);
      if (lossy_ != 0 && m_.last_pass) keep_losses(g, count, values);
    }
  }

 private:
  __device__ const CodecSpec& spec(uint8_t codec) const { return a_.codecs[codec - 1]; }
  __device__ const LaneOperand& destination(uint32_t d) const {
    return m_.operands[m_.source_count + d];
  }
  __device__ static bool is_coded_message(const LaneOperand& operand) {
    return operand.kind == LaneOperand::kMessage && operand.codec != 0;
  }
  __device__ static float rounded(float value) { return Type::load(Type::store(value)); }
  __device__ uint64_t block() const { return begin_ / a_.codec_block; }

  // Where the codes of the block's element g are.
  __device__ uint64_t codes_at(const CodecSpec& s, uint32_t g) const {
    const uint64_t at = begin_ + g, scales = 4 * s.blocks(m_.elements);
    return scales + (s.kind == Codec::kInt4 ? at / 2 : s.kind == Codec::kOneBit ? at / 8 : at);
  }

  __device__ void decode(const CodecSpec& s, const std::byte* from, uint32_t g, uint32_t count,
                         float* values) const {
    if (s.kind == Codec::kWiden) {
      const auto* wide = reinterpret_cast<const volatile float*>(from) + begin_ + g;
      for (uint32_t i = 0; i < count; i++) values[i] = wide[i];
      return;
    }
    if (s.kind == Codec::kTopK) return decode_kept(s, from, g, count, values);
    const float scale = reinterpret_cast<const volatile float*>(from)[block()];
    const auto* codes = reinterpret_cast<const volatile uint8_t*>(from) + codes_at(s, g);
    for (uint32_t i = 0; i < count; i++) {
      const uint32_t per_byte = s.kind == Codec::kInt4 ? 2 : s.kind == Codec::kOneBit ? 8 : 1;
      values[i] = rounded(value_of(s.kind, codes[i / per_byte], i % per_byte, scale));
    }
  }
  // Part `i` of a byte of codes.
  __device__ static float value_of(Codec kind, uint32_t byte, uint32_t i, float scale) {
    switch (kind) {
      case Codec::kInt8:
        return codec::product(static_cast<float>(static_cast<int8_t>(byte)), scale);
      case Codec::kInt4:
        return codec::product(codec::int4_value(byte >> 4 * i), scale);
      case Codec::kFp8:
        return codec::product(codec::fp8_value(byte), scale);
      default:
        return codec::onebit_value((byte >> i & 1) != 0, scale);
    }
  }

  // Elements as the result has them before any encoding.
  __device__ void sum(uint32_t g, uint32_t count, float* values) const {
    float more[kGroup];
    read(0, g, count, values);
    for (uint32_t s = 1; s < m_.source_count; s++) {
      read(s, g, count, more);
      for (uint32_t i = 0; i < count; i++) values[i] = codec::sum(values[i], more[i]);
    }
    for (uint32_t i = 0; i < count && m_.divide_by != 0; i++)
      values[i] = codec::quotient(values[i], static_cast<float>(m_.divide_by));
    for (uint32_t i = 0; i < count && lossy_ != 0; i++)
      values[i] = codec::sum(values[i], m_.losses[begin_ + g + i]);
  }
  // A block with a NaN has lost nothing that a later call could make good.
  __device__ void keep_losses(uint32_t g, uint32_t count, const float* values) const {
    for (uint32_t i = 0; i < count; i++) {
      const float lost = codec::difference(values[i], seen(lossy_, values[i], i));
      const bool finite = (codec::bits_of(lost) & codec::kMagnitude) < codec::kInfinity;
      m_.losses[begin_ + g + i] = finite ? lost : 0.0f;
    }
  }
  __device__ void read(uint32_t s, uint32_t g, uint32_t count, float* values) const {
    const LaneOperand& operand = m_.operands[s];
    if (is_coded_message(operand))
      return decode(spec(operand.codec), m_.sources[s], g, count, values);
    const auto* from = reinterpret_cast<const volatile Element*>(m_.sources[s]) + begin_ + g;
    const bool scaled = (m_.scaled >> s & 1u) != 0;
    for (uint32_t i = 0; i < count; i++) {
      const Element e = from[i];
      values[i] = Type::load(scaled ? scale<Type>(e, m_.scalars[s]) : e);
    }
  }

  // The scales of all codecs that encode this block, and into messages.
  __device__ void scale_up() {
    bool encodes = passed_ != 0 && !passes_message_;
    for (uint32_t d = 0; d < m_.destination_count; d++) {
      const uint8_t codec = destination(d).codec;
      encodes =
          encodes || (codec != 0 && spec(codec).lossy() && !(passes_message_ && codec == passed_));
    }
    if (!encodes) return copy_scales();
    uint32_t largest = 0;
    float values[kGroup], columns[codec::kMeanColumns] = {};
    const float share = codec::quotient(1.0f, static_cast<float>(n_));
    for (uint32_t g = 0; g < n_; g += kGroup) {
      const uint32_t count = n_ - g < kGroup ? n_ - g : kGroup;
      sum(g, count, values);
      for (uint32_t i = 0; i < count; i++) {
        const uint32_t bits = codec::bits_of(rounded(values[i])) & codec::kMagnitude;
        if (bits > largest) largest = bits;
        float& column = columns[(g + i) % codec::kMeanColumns];
        column = codec::sum(column, codec::product(codec::float_of(bits), share));
      }
    }
    float mean = columns[0];
    for (uint32_t j = 1; j < codec::kMeanColumns; j++) mean = codec::sum(mean, columns[j]);
    for (uint32_t k = 0; k < kMostLaneCodecs; k++) {
      const Codec kind = a_.codecs[k].kind;
      if (kind == Codec::kTopK) choose_kept(k, largest);
      if (kind == Codec::kNone || !a_.codecs[k].scaled()) continue;
      scales_[k] = codec::scales_of(kind == Codec::kOneBit ? Codec::kInt8 : kind, largest);
      if (kind == Codec::kOneBit && scales_[k].encode != 0) scales_[k].decode = mean;
    }
    copy_scales();
  }
  __device__ void copy_scales() const {
    for (uint32_t d = 0; d < m_.destination_count; d++) {
      const LaneOperand& to = destination(d);
      if (!is_coded_message(to) || !spec(to.codec).scaled()) continue;
      const float scale = passes_message_ && to.codec == passed_
                              ? reinterpret_cast<const volatile float*>(m_.sources[0])[block()]
                              : scales_[to.codec - 1].decode;
      reinterpret_cast<float*>(m_.destinations[d])[block()] = scale;
    }
  }

  // The code of a value, in the low bits.
  __device__ uint32_t code_of(uint8_t codec, float value) const {
    const codec::Scales& scales = scales_[codec - 1];
    const float from = scales.encode == 0 ? 0.0f : value;
    switch (spec(codec).kind) {
      case Codec::kInt8:
        return static_cast<uint8_t>(codec::int8_code(from, scales.encode));
      case Codec::kInt4:
        return codec::int4_code(from, scales.encode);
      case Codec::kFp8:
        return codec::fp8_code(from, scales.encode);
      default:
        return codec::bits_of(from) >> 31;
    }
  }
  // Value i of a group as receivers of a coded message see it.
  __device__ float seen(uint8_t codec, float value, uint32_t i) const {
    if (spec(codec).kind == Codec::kTopK) return kept_[codec - 1].seen(rounded(value), i);
    const uint32_t code = code_of(codec, rounded(value));
    return rounded(value_of(spec(codec).kind, code, 0, scales_[codec - 1].decode));
  }

  __device__ void write(uint32_t d, uint32_t g, uint32_t count, const float* values) const {
    const LaneOperand& to = destination(d);
    std::byte* at = m_.destinations[d];
    // The only source is memory that is seen through a codec.
    const bool memory_seen = passed_ != 0 && !passes_message_;
    if (!is_coded_message(to)) {
      auto* out = reinterpret_cast<Element*>(at) + begin_ + g;
      const uint8_t codec = memory_seen                              ? passed_
                            : passes_message_ && to.codec == passed_ ? 0
                                                                     : to.codec;
      for (uint32_t i = 0; i < count; i++)
        out[i] = Type::store(codec != 0 ? seen(codec, values[i], i) : values[i]);
    } else if (passes_message_ && to.codec == passed_) {
      pass_on(at, g, count);
    } else if (!spec(to.codec).lossy()) {
      for (uint32_t i = 0; i < count; i++) reinterpret_cast<float*>(at)[begin_ + g + i] = values[i];
    } else if (spec(to.codec).kind == Codec::kTopK) {
      encode_kept(to.codec, at, g, count, values);
    } else {
      encode(to.codec, reinterpret_cast<uint8_t*>(at) + codes_at(spec(to.codec), g), count, values);
    }
  }
  __device__ void encode(uint8_t codec, uint8_t* codes, uint32_t count, const float* values) const {
    const Codec kind = spec(codec).kind;
    const uint32_t per_byte = kind == Codec::kInt4 ? 2 : kind == Codec::kOneBit ? 8 : 1;
    for (uint32_t i = 0; i < count; i += per_byte) {
      uint32_t byte = 0;
      for (uint32_t j = 0; j < per_byte && i + j < count; j++)
        byte |= code_of(codec, rounded(values[i + j])) << 8 / per_byte * j;
      codes[i / per_byte] = static_cast<uint8_t>(byte);
    }
  }
  __device__ void pass_on(std::byte* to, uint32_t g, uint32_t count) const {
    const CodecSpec& s = spec(passed_);
    const std::byte* from = m_.sources[0];
    uint64_t first = (begin_ + g) * 4, bytes = count * 4;
    if (s.kind == Codec::kTopK) {
      if (g == 0) copy_kept(s, from, to);
      return;
    }
    if (s.lossy()) {
      first = codes_at(s, g);
      bytes = s.kind == Codec::kInt4     ? (count + 1) / 2
              : s.kind == Codec::kOneBit ? (count + 7) / 8
                                         : count;
    }
    copy_bytes(from, to, first, bytes);
  }
  __device__ static void copy_bytes(const std::byte* from, std::byte* to, uint64_t first,
                                    uint64_t bytes) {
    for (uint64_t i = first; i < first + bytes; i++)
      to[i] = static_cast<std::byte>(reinterpret_cast<const volatile uint8_t*>(from)[i]);
  }

  // Top-k. Where the block's kept values and their places begin in a message, in bytes.
  __device__ uint64_t kept_before(const CodecSpec& s) const { return block() * s.kept(s.block); }
  __device__ uint64_t values_at(const CodecSpec& s) const {
    return kept_before(s) * sizeof(Element);
  }
  __device__ uint64_t places_at(const CodecSpec& s) const {
    return s.kept_of(m_.elements) * sizeof(Element) + kept_before(s) * sizeof(uint16_t);
  }
  __device__ void copy_kept(const CodecSpec& s, const std::byte* from, std::byte* to) const {
    copy_bytes(from, to, values_at(s), s.kept(n_) * sizeof(Element));
    copy_bytes(from, to, places_at(s), s.kept(n_) * sizeof(uint16_t));
  }
  // Places are in order, so the first one of the group is found by halving.
  __device__ void decode_kept(const CodecSpec& s, const std::byte* from, uint32_t g, uint32_t count,
                              float* values) const {
    const auto* kept = reinterpret_cast<const volatile Element*>(from + values_at(s));
    const auto* places = reinterpret_cast<const volatile uint16_t*>(from + places_at(s));
    const bool poisoned = places[0] == kPoisonedPlace;
    for (uint32_t i = 0; i < count; i++) values[i] = poisoned ? codec::float_of(codec::kNan) : 0.0f;
    if (poisoned) return;
    uint32_t k = 0;
    const uint32_t all = s.kept(n_);
    for (uint32_t end = all; k < end;) {
      const uint32_t middle = (k + end) / 2;
      if (places[middle] < g)
        k = middle + 1;
      else
        end = middle;
    }
    for (; k < all && places[k] < g + count; k++) {
      const Element value = kept[k];
      values[places[k] - g] = Type::load(value);
    }
  }

  // What a top-k codec keeps of the block: magnitudes above a threshold, and the first ones that
  // equal it.
  struct Kept {
    uint32_t threshold = 0, equals = 0;  // equals: that are left to be taken
    uint32_t taken = 0;                  // before this group
    uint32_t mask = 0;                   // of this group
    bool poisoned = false;
    __device__ float seen(float value, uint32_t i) const {
      return poisoned ? codec::float_of(codec::kNan) : (mask >> i & 1u) != 0 ? value : 0.0f;
    }
  };
  // Finds the threshold four bits at a time: the block is read once for each.
  __device__ void choose_kept(uint32_t codec, uint32_t largest) {
    Kept& kept = kept_[codec];
    kept = {};
    kept.poisoned = largest >= codec::kInfinity;
    uint32_t wanted = a_.codecs[codec].kept(n_), known = 0;
    float values[kGroup];
    for (int shift = 28; shift >= 0; shift -= 4) {
      uint32_t counts[16] = {};
      for (uint32_t g = 0; g < n_; g += kGroup) {
        const uint32_t count = n_ - g < kGroup ? n_ - g : kGroup;
        sum(g, count, values);
        for (uint32_t i = 0; i < count; i++) {
          const uint32_t bits = codec::bits_of(rounded(values[i])) & codec::kMagnitude;
          if ((bits & known) == kept.threshold) counts[bits >> shift & 15u]++;
        }
      }
      uint32_t digit = 15;
      for (; counts[digit] < wanted; digit--) wanted -= counts[digit];
      kept.threshold |= digit << shift;
      known |= 15u << shift;
    }
    kept.equals = wanted;
  }
  // Which values of the group top-k codecs keep.
  __device__ void pick(uint32_t g, uint32_t count, const float* values) {
    for (uint32_t k = 0; k < kMostLaneCodecs; k++) {
      if (a_.codecs[k].kind != Codec::kTopK) continue;
      Kept& kept = kept_[k];
      if (g > 0) kept.taken += static_cast<uint32_t>(__popc(kept.mask));
      kept.mask = 0;
      for (uint32_t i = 0; i < count; i++) {
        const uint32_t bits = codec::bits_of(rounded(values[i])) & codec::kMagnitude;
        const bool equal = bits == kept.threshold && kept.equals > 0;
        if (equal) kept.equals--;
        if (equal || bits > kept.threshold) kept.mask |= 1u << i;
      }
    }
  }
  __device__ void encode_kept(uint8_t codec, std::byte* to, uint32_t g, uint32_t count,
                              const float* values) const {
    const CodecSpec& s = spec(codec);
    const Kept& kept = kept_[codec - 1];
    auto* out = reinterpret_cast<Element*>(to + values_at(s));
    auto* places = reinterpret_cast<uint16_t*>(to + places_at(s));
    uint32_t at = kept.taken;
    for (uint32_t i = 0; i < count; i++) {
      if ((kept.mask >> i & 1u) == 0) continue;
      out[at] = Type::store(kept.poisoned ? codec::float_of(codec::kNan) : values[i]);
      places[at++] = kept.poisoned ? kPoisonedPlace : static_cast<uint16_t>(g + i);
    }
  }

  const LaneArguments& a_;
  const LaneMovement& m_;
  const uint64_t begin_;
  const uint32_t n_;
  uint8_t passed_ = 0;  // the codec of the only source
  bool passes_message_ = false;
  uint8_t lossy_ = 0;  // the codec whose losses are kept
  codec::Scales scales_[kMostLaneCodecs];
  Kept kept_[kMostLaneCodecs];
};

// All threads of the block. Out of line: other steps should not pay for its registers.
template <typename Type>
__device__ __noinline__ void combine_coded(const LaneArguments& a, const LaneMovement& m) {
  const uint64_t blocks = (m.elements + a.codec_block - 1) / a.codec_block;
  for (uint64_t b = threadIdx.x; b < blocks; b += blockDim.x) {
    const uint64_t begin = b * a.codec_block, left = m.elements - begin;
    CodedBlock<Type>(a, m, begin,
                     static_cast<uint32_t>(left < a.codec_block ? left : a.codec_block))
        .move();
  }
}

}  // namespace weft::cuda
