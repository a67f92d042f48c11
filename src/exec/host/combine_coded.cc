// See combine_coded.h. Works in tiles of whole blocks: everything of a tile is read before any of
// it is written, so operands may be the same memory.
#include "src/exec/host/combine_coded.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "src/exec/host/codecs.h"
#include "src/exec/host/numbers.h"

namespace weft::host {
namespace {

constexpr uint32_t kTile = 1024;  // at least a block
constexpr uint32_t kMostTile = std::max(kTile, kMostBlock);
// Room for an encoded tile. Top-k with density 1 takes 6 bytes an element.
constexpr size_t kTileBytes = size_t{6} * kMostTile + 64;

struct CodedJob {
  const Reduction& reduction;
  const CodedOperand* sources;
  uint32_t source_count;
  uint64_t raw_sources;
  bool completes;
  const CodedOperand* destinations;
  uint32_t destination_count;
  uint64_t elements;
  float* residual;
};

template <typename Type>
void load_all(const std::byte* from, float* values, uint32_t n) {
  const auto* elements = reinterpret_cast<const typename Type::Element*>(from);
  for (uint32_t i = 0; i < n; i++) values[i] = Type::load(elements[i]);
}

template <typename Type>
void store_all(std::byte* to, const float* values, uint32_t n) {
  auto* elements = reinterpret_cast<typename Type::Element*>(to);
  for (uint32_t i = 0; i < n; i++) elements[i] = Type::store(values[i]);
}

template <typename Type>
class Tiles {
 public:
  explicit Tiles(const CodedJob& job) : job_(job) {
    for (uint32_t i = 0; i < job.source_count; i++) widen_tile(job.sources[i].codec);
    for (uint32_t i = 0; i < job.destination_count; i++) {
      const CodecSpec* codec = job.destinations[i].codec;
      widen_tile(codec);
      if (lossy_ == nullptr && codec != nullptr && codec->lossy()) lossy_ = codec;
    }
    if (job.source_count == 1) passed_ = job.sources[0].codec;
    compensates_ = job.residual != nullptr && lossy_ != nullptr && passed_ == nullptr;
  }

  void run() {
    for (uint64_t at = 0; at < job_.elements; at += tile_) {
      const auto n = static_cast<uint32_t>(std::min<uint64_t>(tile_, job_.elements - at));
      collect(at, n);
      for (uint32_t d = 0; d < job_.destination_count; d++) send(job_.destinations[d], at, n);
      seen_of_ = nullptr;
      if (compensates_) keep_losses(at, n);
      for (uint32_t d = 0; d < job_.destination_count; d++) store(job_.destinations[d], at, n);
    }
    for (uint32_t d = 0; d < job_.destination_count; d++) copy_message(job_.destinations[d]);
  }

 private:
  void widen_tile(const CodecSpec* spec) {
    if (spec != nullptr) tile_ = std::max(tile_, spec->block);
  }
  static bool is_coded_message(const CodedOperand& operand) {
    return operand.message && operand.codec != nullptr;
  }
  CodedBytes message(const CodedOperand& operand) const {
    return {*operand.codec, operand.data, job_.elements, job_.reduction.type};
  }
  static std::byte* memory(const CodedOperand& operand, uint64_t at) {
    return operand.data + at * sizeof(typename Type::Element);
  }

  float scalar_of() const {
    if (job_.reduction.scale != 0) return job_.reduction.scale;
    typename Type::Element element;
    std::memcpy(&element, &job_.reduction.scalar_bits, sizeof element);
    return Type::load(element);
  }

  // Reads source `s` of a tile as values of the type, or as wide sums.
  void read(uint32_t s, uint64_t at, uint32_t n, float* values) {
    const CodedOperand& source = job_.sources[s];
    if (is_coded_message(source)) {
      decode(message(source), at, n, values);
      if (source.codec->lossy()) round_to(job_.reduction.type, values, n);
      return;
    }
    load_all<Type>(memory(source, at), values, n);
    if (job_.reduction.premultiply && (job_.raw_sources >> s & 1u) != 0) {
      const float scalar = scalar_of();
      for (uint32_t i = 0; i < n; i++) values[i] *= scalar;
      round_to(job_.reduction.type, values, n);
    }
    if (source.codec == nullptr) return;
    if (passed_ != nullptr) std::copy_n(values, n, plain_);
    round_trip(*source.codec, values, n);
  }

  // What receivers of a coded message would see. `values` are values of the type.
  void round_trip(const CodecSpec& spec, float* values, uint32_t n) {
    const CodedBytes bytes{spec, room_, n, job_.reduction.type};
    encode(bytes, 0, n, values);
    decode(bytes, 0, n, values);
    round_to(job_.reduction.type, values, n);
  }

  void collect(uint64_t at, uint32_t n) {
    read(0, at, n, sum_);
    for (uint32_t s = 1; s < job_.source_count; s++) {
      read(s, at, n, seen_);
      for (uint32_t i = 0; i < n; i++) sum_[i] += seen_[i];
    }
    if (job_.completes && job_.reduction.divide_by > 0) {
      const auto by = static_cast<float>(job_.reduction.divide_by);
      for (uint32_t i = 0; i < n; i++) sum_[i] /= by;
    }
    if (compensates_)
      for (uint32_t i = 0; i < n; i++) sum_[i] += job_.residual[at + i];
  }

  // A message with the same bytes: what came, or an earlier destination. nullptr: none.
  const CodedOperand* source_of(const CodedOperand& to) const {
    if (passed_ == to.codec && job_.sources[0].message) return &job_.sources[0];
    return first_message(to.codec, &to);
  }
  const CodedOperand* first_message(const CodecSpec* codec, const CodedOperand* end) const {
    for (const CodedOperand* d = job_.destinations; d != end; d++)
      if (d->message && d->codec == codec) return d;
    return nullptr;
  }

  void send(const CodedOperand& to, uint64_t at, uint32_t n) {
    if (!is_coded_message(to) || source_of(to) != nullptr) return;
    // A source in memory that is seen through this codec is encoded as it lies there.
    if (passed_ == to.codec) {
      encode(message(to), at, n, plain_);
    } else if (!to.codec->lossy() || std::is_same_v<Type, Native<float>>) {
      encode(message(to), at, n, sum_);
    } else {
      std::copy_n(sum_, n, seen_);
      round_to(job_.reduction.type, seen_, n);
      encode(message(to), at, n, seen_);
    }
  }

  // Puts the result as receivers of a coded message see it into `seen_`.
  void see(const CodecSpec& spec, uint64_t at, uint32_t n) {
    if (seen_of_ == &spec) return;
    seen_of_ = &spec;
    const CodedOperand* sent = first_message(&spec, job_.destinations + job_.destination_count);
    if (sent != nullptr && passed_ != &spec) {
      decode(message(*sent), at, n, seen_);
      round_to(job_.reduction.type, seen_, n);
      return;
    }
    std::copy_n(sum_, n, seen_);
    round_to(job_.reduction.type, seen_, n);
    if (passed_ != &spec) round_trip(spec, seen_, n);
  }

  // A block with a NaN has lost nothing that a later call could make good.
  void keep_losses(uint64_t at, uint32_t n) {
    see(*lossy_, at, n);
    float* residual = job_.residual + at;
    for (uint32_t i = 0; i < n; i++) {
      const float lost = sum_[i] - seen_[i];
      residual[i] = std::isfinite(lost) ? lost : 0.0f;
    }
  }

  void store(const CodedOperand& to, uint64_t at, uint32_t n) {
    if (is_coded_message(to)) return;
    if (to.codec != nullptr) see(*to.codec, at, n);
    store_all<Type>(memory(to, at), to.codec != nullptr ? seen_ : sum_, n);
  }

  void copy_message(const CodedOperand& to) const {
    if (!is_coded_message(to)) return;
    if (const CodedOperand* from = source_of(to))
      std::memcpy(to.data, from->data,
                  encoded_bytes(*to.codec, job_.elements, sizeof(typename Type::Element)));
  }

  const CodedJob& job_;
  const CodecSpec* passed_ = nullptr;   // the codec of the only source
  const CodecSpec* lossy_ = nullptr;    // the first of a destination
  const CodecSpec* seen_of_ = nullptr;  // through which `seen_` is seen
  bool compensates_ = false;
  uint32_t tile_ = kTile;
  float sum_[kMostTile], seen_[kMostTile];
  float plain_[kMostTile];  // the only source before its round trip
  alignas(kCodecAlign) std::byte room_[kTileBytes];
};

}  // namespace

void combine_coded(const Reduction& reduction, const CodedOperand* sources, uint32_t source_count,
                   uint64_t raw_sources, bool completes, const CodedOperand* destinations,
                   uint32_t destination_count, uint64_t elements, float* residual) noexcept {
  const CodedJob job{reduction,    sources,           source_count, raw_sources, completes,
                     destinations, destination_count, elements,     residual};
  switch (reduction.type) {
    case ncclFloat32:
      return Tiles<Native<float>>(job).run();
    case ncclFloat16:
      return Tiles<Half>(job).run();
    default:
      return Tiles<BFloat16>(job).run();
  }
}

}  // namespace weft::host
