// See codec_speed.h.
#include "src/exec/host/codec_speed.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "src/exec/host/codecs.h"

namespace weft::host {
namespace {

constexpr uint64_t kElements = uint64_t{1} << 18;
constexpr int kRounds = 5;  // the fastest counts

struct alignas(kCodecAlign) Unit {
  std::byte bytes[kCodecAlign];
};

// Calls `use` for every run of blocks.
template <typename Use>
double us_per_megabyte(Use use) {
  double best = 0;
  for (int round = 0; round < kRounds; round++) {
    const auto began = std::chrono::steady_clock::now();
    for (uint64_t at = 0; at < kElements; at += kMostBlock) use(at);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
    best = round == 0 ? took.count() : std::min(best, took.count());
  }
  return best / (static_cast<double>(kElements) * sizeof(float) * 1e-6);
}

}  // namespace

CodecSpeed measure_codec(const CodecSpec& spec) {
  std::vector<float> values(kElements);
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state));
  }
  std::vector<Unit> room(encoded_bytes(spec, kElements, sizeof(float)) / kCodecAlign);
  const CodedBytes bytes{spec, room.data()->bytes, kElements, ncclFloat32};
  CodecSpeed speed;
  speed.encode_us_mb =
      us_per_megabyte([&](uint64_t at) { encode(bytes, at, kMostBlock, values.data() + at); });
  speed.decode_us_mb =
      us_per_megabyte([&](uint64_t at) { decode(bytes, at, kMostBlock, values.data() + at); });
  return speed;
}

}  // namespace weft::host
