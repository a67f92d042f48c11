// Steps with codecs in a lane: decode, sum in float, encode. A thread has eight elements at a time,
// and a warp a whole block, or several small ones. The bits are those of
// src/exec/host/combine_coded.h.
#pragma once

#include "src/exec/cuda/kernels/lane_packets.cuh"
#include "src/exec/cuda/kernels/lane_topk.cuh"

namespace weft::cuda {

// Kernels of these types have the code: not 8-bit floats. Sums only.
template <typename Type>
concept SumsInFloat = std::is_same_v<typename Type::Accumulator, float>;
template <typename Type>
concept CodedType = SumsInFloat<Type> &&(sizeof(typename Type::Element) > 1);
template <typename Type, typename Op>
inline constexpr bool kRunsCodecs = kSums<Op>&& CodedType<Type>;

// Members of a team have groups of their block in turn. If the block has more groups than the team
// has members, there are several rounds, and sums are worked out again in each pass over the block.
// Else they stay in registers. All lanes of a warp go through the same rounds, so that they can
// exchange values: lanes without elements have groups of none.
template <typename Type>
class CodedBlocks {
 public:
  using Element = typename Type::Element;

  // `kept`: room for top-k codecs. It is not a member, because these are looked up by number: all
  // members would lie in memory then.
  __device__ CodedBlocks(const LaneArguments& a, const LaneMovement& m, KeptOfBlock* kept)
      : a_(a), m_(m), kept_(kept) {
    const uint32_t groups = a.codec_block / kCodedGroup;
    team_.size = groups < kWarp ? groups : kWarp;
    rounds_ = groups / team_.size;
    if (m.source_count == 1) passed_ = m.operands[0].codec;
    passes_message_ = passed_ != 0 && m.operands[0].kind == LaneOperand::kMessage;
    if (memory_seen()) use(passed_);
    for (uint32_t d = 0; d < m.destination_count; d++) {
      const uint8_t codec = destination(d).codec;
      if (codec == 0 || !spec(codec).lossy() || is_passed(codec)) continue;
      use(codec);
      if (lossy_ == 0 && passed_ == 0 && m.losses != nullptr) lossy_ = codec;
    }
  }

  // Elements that a warp has at once.
  __device__ uint64_t tile() const { return kWarp / team_.size * uint64_t{a_.codec_block}; }

  // All threads of a warp.
  __device__ void move(uint64_t tile_begin) {
    begin_ = tile_begin + team_.lane() / team_.size * uint64_t{a_.codec_block};
    const uint64_t left = begin_ < m_.elements ? m_.elements - begin_ : 0;
    n_ = static_cast<uint32_t>(left < a_.codec_block ? left : a_.codec_block);
    CodedValues values;
    if (used_ != 0) measure(values);
    if (n_ > 0 && team_.member() == 0) write_scales();
    for (uint32_t round = 0; round < rounds_; round++) {
      go_to(round);
      if (used_ == 0 || rounds_ > 1) sum(values);
      pick(values);
      if (round == 0 && n_ > 0) pass_on_kept();
      coded_ = 0;
      for (uint32_t d = 0; d < m_.destination_count && count_ > 0; d++) write(d, values);
      if (lossy_ != 0 && count_ > 0) keep_losses(values);
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
  // The only source is memory that is seen through a codec.
  __device__ bool memory_seen() const { return passed_ != 0 && !passes_message_; }
  // The only source is a message with this codec. So its bytes go on as they are.
  __device__ bool is_passed(uint8_t codec) const { return passes_message_ && codec == passed_; }
  __device__ void use(uint8_t codec) { used_ |= 1u << (codec - 1); }
  __device__ static float rounded(float value) { return Type::load(Type::store(value)); }
  __device__ uint64_t block() const { return begin_ / a_.codec_block; }
  __device__ uint64_t at() const { return begin_ + g_; }  // the group

  __device__ void go_to(uint32_t round) {
    g_ = (round * team_.size + team_.member()) * kCodedGroup;
    const uint32_t left = g_ < n_ ? n_ - g_ : 0;
    count_ = left < kCodedGroup ? left : kCodedGroup;
  }
  // Where the group's codes are.
  __device__ uint64_t codes_at(const CodecSpec& s) const {
    return 4 * s.blocks(m_.elements) + at() * code_bits(s.kind) / 8;
  }
  __device__ KeptInMessage<Type> kept_in(const CodecSpec& s, const std::byte* message) const {
    const uint64_t before = block() * s.kept(s.block);
    auto* first = const_cast<std::byte*>(message);
    return {first + before * sizeof(Element),
            first + s.kept_of(m_.elements) * sizeof(Element) + before * sizeof(uint16_t),
            s.kept(n_)};
  }

  // The group as the result has it before any encoding. Zeros follow the last element.
  __device__ void sum(CodedValues& values) const {
    constexpr uint32_t kBatch = 4;  // sources that are loaded before the first is needed
    for (uint32_t first = 0; first < m_.source_count; first += kBatch) {
      CodedWords words[kBatch];
#pragma unroll
      for (uint32_t b = 0; b < kBatch; b++)
        if (first + b < m_.source_count && count_ > 0) load(first + b, words[b]);
#pragma unroll
      for (uint32_t b = 0; b < kBatch; b++)
        if (first + b < m_.source_count && count_ > 0) add(first + b, words[b], values);
    }
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++)
      if (m_.divide_by != 0)
        values[i] = codec::quotient(values[i], static_cast<float>(m_.divide_by));
    if (lossy_ != 0) {
      CodedWords lost;
      load_elements<float>(reinterpret_cast<const std::byte*>(m_.losses + at()), count_, lost);
#pragma unroll
      for (uint32_t i = 0; i < kCodedGroup; i++)
        values[i] = codec::sum(values[i], element_of<float>(lost, i));
    }
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++)
      if (i >= count_) values[i] = 0;
  }
  __device__ void load(uint32_t s, CodedWords& words) const {
    const LaneOperand& operand = m_.operands[s];
    const std::byte* from = m_.sources[s];
    if (!is_coded_message(operand))
      return load_elements<Element>(from + at() * sizeof(Element), count_, words);
    const CodecSpec& with = spec(operand.codec);
    if (with.kind == Codec::kWiden) return load_elements<float>(from + at() * 4, count_, words);
    if (with.kind == Codec::kTopK) return;
    words.scale = codec::float_of(load_once(reinterpret_cast<const uint32_t*>(from) + block()));
    const uint64_t codes = load_codes(from + codes_at(with), code_bytes(with.kind, count_));
    words.words[0] = static_cast<uint32_t>(codes);
    words.words[1] = static_cast<uint32_t>(codes >> 32);
  }
  __device__ void add(uint32_t s, const CodedWords& words, CodedValues& sums) const {
    CodedValues values;
    const LaneOperand& operand = m_.operands[s];
    if (!is_coded_message(operand)) {
      const bool scaled = (m_.scaled >> s & 1u) != 0;
      const uint64_t scalar = m_.scalars[s];
#pragma unroll
      for (uint32_t i = 0; i < kCodedGroup; i++) {
        const auto e = element_of<Element>(words, i);
        values[i] = Type::load(scaled ? scale<Type>(e, scalar) : e);
      }
    } else if (const CodecSpec& with = spec(operand.codec); with.kind == Codec::kWiden) {
#pragma unroll
      for (uint32_t i = 0; i < kCodedGroup; i++) values[i] = element_of<float>(words, i);
    } else if (with.kind == Codec::kTopK) {
      kept_in(with, m_.sources[s]).decode(g_, count_, values);
    } else {
      decode_group<Type>(with.kind, words.codes(), words.scale, values);
    }
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++)
      sums[i] = s == 0 ? values[i] : codec::sum(sums[i], values[i]);
  }

  // The scales of the codecs that this step encodes with, and what they keep.
  __device__ void measure(CodedValues& values) {
    uint32_t largest = 0;
    const bool wants_mean = uses(Codec::kOneBit);
    CodedValues columns = {};
    for (uint32_t round = 0; round < rounds_; round++) {
      go_to(round);
      sum(values);
#pragma unroll
      for (uint32_t i = 0; i < kCodedGroup; i++) {
        const uint32_t bits = magnitude_bits(rounded(values[i]));
        if (bits > largest) largest = bits;
      }
      if (wants_mean) add_rows(values, columns);
    }
    largest = team_.largest(largest);
    const float mean = wants_mean ? mean_of(columns) : 0;
#pragma unroll
    for (uint32_t k = 0; k < kMostLaneCodecs; k++) {
      if ((used_ >> k & 1u) == 0) continue;
      const Codec kind = a_.codecs[k].kind;
      if (kind == Codec::kTopK) choose_kept(k, largest, values);
      if (!a_.codecs[k].scaled()) continue;
      scales_[k] = codec::scales_of(kind == Codec::kOneBit ? Codec::kInt8 : kind, largest);
      if (kind == Codec::kOneBit && scales_[k].encode != 0) scales_[k].decode = mean;
    }
  }
  __device__ bool uses(Codec kind) const {
    for (uint32_t k = 0; k < kMostLaneCodecs; k++)
      if ((used_ >> k & 1u) != 0 && a_.codecs[k].kind == kind) return true;
    return false;
  }
  // Two members have a row of columns. Every member adds all rows to its half of the columns, from
  // top to bottom. Zeros change nothing.
  __device__ void add_rows(const CodedValues& values, CodedValues& columns) const {
    static_assert(codec::kMeanColumns == 2 * kCodedGroup);
    const float share = codec::quotient(1.0f, static_cast<float>(n_ > 0 ? n_ : 1));
    for (uint32_t row = 0; row < team_.size / 2; row++) {
      const uint32_t from = team_.first() + 2 * row + team_.member() % 2;
#pragma unroll
      for (uint32_t i = 0; i < kCodedGroup; i++) {
        const uint32_t bits = magnitude_bits(rounded(values[i]));
        const float term = codec::product(codec::float_of(bits), share);
        columns[i] = codec::sum(columns[i], codec::float_of(warp_get(codec::bits_of(term), from)));
      }
    }
  }
  __device__ float mean_of(const CodedValues& columns) const {
    float mean = 0;
    for (uint32_t half = 0; half < 2; half++)
#pragma unroll
      for (uint32_t i = 0; i < kCodedGroup; i++)
        mean = codec::sum(
            mean, codec::float_of(warp_get(codec::bits_of(columns[i]), team_.first() + half)));
    return mean;
  }
  __device__ void choose_kept(uint32_t k, uint32_t largest, CodedValues& values) {
    kept_[k].poisoned = largest >= codec::kInfinity;
    // Lanes without a block count as the others do.
    kept_[k].choose(n_ > 0 ? a_.codecs[k].kept(n_) : 0, [&](uint32_t least) {
      uint32_t found = 0;
      for (uint32_t round = 0; round < rounds_; round++) {
        if (rounds_ > 1) {
          go_to(round);
          sum(values);
        }
#pragma unroll
        for (uint32_t i = 0; i < kCodedGroup; i++)
          if (i < count_ && magnitude_bits(rounded(values[i])) >= least) found++;
      }
      return team_.sum(found);
    });
  }
  __device__ void pick(const CodedValues& values) {
    if (!uses(Codec::kTopK)) return;
    CodedValues of_type;
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++) of_type[i] = rounded(values[i]);
    for (uint32_t k = 0; k < kMostLaneCodecs; k++)
      if ((used_ >> k & 1u) != 0 && a_.codecs[k].kind == Codec::kTopK)
        kept_[k].pick(team_, of_type, count_);
  }

  // (Looked up so that they stay in registers.)
  __device__ codec::Scales scales_of(uint8_t codec) const {
    codec::Scales scales = scales_[0];
#pragma unroll
    for (uint32_t k = 1; k < kMostLaneCodecs; k++)
      if (codec == k + 1) scales = scales_[k];
    return scales;
  }
  __device__ void write_scales() const {
    for (uint32_t d = 0; d < m_.destination_count; d++) {
      const LaneOperand& to = destination(d);
      if (!is_coded_message(to) || !spec(to.codec).scaled()) continue;
      const uint32_t scale =
          is_passed(to.codec)
              ? load_once(reinterpret_cast<const uint32_t*>(m_.sources[0]) + block())
              : codec::bits_of(scales_of(to.codec).decode);
      reinterpret_cast<uint32_t*>(m_.destinations[d])[block()] = scale;
    }
  }

  // The group's codes. Several destinations may have the same.
  __device__ uint64_t codes(uint8_t codec, const CodedValues& values) {
    if (coded_ != codec)
      codes_ = encode_group<Type>(spec(codec).kind, values, count_, scales_of(codec).encode);
    coded_ = codec;
    return codes_;
  }
  // The group as receivers of a coded message see it.
  __device__ void see(uint8_t codec, const CodedValues& values, CodedValues& seen) {
    const Codec kind = spec(codec).kind;
    if (kind != Codec::kTopK)
      return decode_group<Type>(kind, codes(codec, values), scales_of(codec).decode, seen);
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++)
      seen[i] = kept_[codec - 1].seen(rounded(values[i]), i);
  }

  __device__ void write(uint32_t d, const CodedValues& values) {
    const LaneOperand& to = destination(d);
    std::byte* out = m_.destinations[d];
    if (!is_coded_message(to)) {
      out += at() * sizeof(Element);
      const uint8_t codec = memory_seen() ? passed_ : is_passed(to.codec) ? 0 : to.codec;
      if (codec == 0) return store_elements<Type>(out, count_, values);
      CodedValues seen;
      see(codec, values, seen);
      return store_elements<Type>(out, count_, seen);
    }
    const CodecSpec& with = spec(to.codec);
    if (with.kind == Codec::kWiden)  // it passes as it came: it is the only source
      return store_elements<Native<float>>(out + at() * 4, count_, values);
    if (with.kind == Codec::kTopK) {
      if (!is_passed(to.codec)) kept_in(with, out).encode(kept_[to.codec - 1], g_, values);
      return;
    }
    const uint32_t bytes = code_bytes(with.kind, count_);
    const uint64_t first = codes_at(with);
    store_codes(
        out + first, bytes,
        is_passed(to.codec) ? load_codes(m_.sources[0] + first, bytes) : codes(to.codec, values));
  }
  __device__ void pass_on_kept() const {
    if (!passes_message_ || spec(passed_).kind != Codec::kTopK) return;
    for (uint32_t d = 0; d < m_.destination_count; d++)
      if (is_coded_message(destination(d)) && is_passed(destination(d).codec))
        kept_in(spec(passed_), m_.destinations[d])
            .copy_from(kept_in(spec(passed_), m_.sources[0]), team_);
  }
  // A block with a NaN has lost nothing that a later call could make good.
  __device__ void keep_losses(const CodedValues& values) {
    CodedValues lost;
    see(lossy_, values, lost);
#pragma unroll
    for (uint32_t i = 0; i < kCodedGroup; i++) {
      lost[i] = codec::difference(values[i], lost[i]);
      if (magnitude_bits(lost[i]) >= codec::kInfinity) lost[i] = 0;
    }
    store_elements<Native<float>>(reinterpret_cast<std::byte*>(m_.losses + at()), count_, lost);
  }

  const LaneArguments& a_;
  const LaneMovement& m_;
  WarpTeam team_;
  uint32_t rounds_ = 1;
  uint8_t passed_ = 0;  // the codec of the only source
  bool passes_message_ = false;
  uint8_t lossy_ = 0;  // the codec whose losses are kept
  uint32_t used_ = 0;  // codecs that encode, a bit each
  // This lane's block and group.
  uint64_t begin_ = 0;
  uint32_t n_ = 0, g_ = 0, count_ = 0;
  codec::Scales scales_[kMostLaneCodecs];
  KeptOfBlock* const kept_;  // by codec
  uint8_t coded_ = 0;        // the codec of `codes_`; 0: none
  uint64_t codes_ = 0;
};

// The threads of a team. Out of line: other steps should not pay for its registers.
template <typename Type>
__device__ __noinline__ void combine_coded(const LaneArguments& a, const LaneMovement& m,
                                           BlockTeam team) {
  const uint32_t warp = team.thread / kWarp, warps = team.threads / kWarp;
  if (warp >= warps) return;  // not a whole warp
  KeptOfBlock kept[kMostLaneCodecs];
  CodedBlocks<Type> blocks(a, m, kept);
  for (uint64_t at = warp * blocks.tile(); at < m.elements; at += warps * blocks.tile())
    blocks.move(at);
}

}  // namespace weft::cuda
