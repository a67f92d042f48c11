// See losses.h.
#include "src/comm/losses.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {

// A residual is in the units of the sum that it belongs to.
bool Losses::Entry::is_of(const Call& call) const {
  const Reduction& other = call.reduction;
  return kind == call.kind && input == call.input && count == call.count && block == call.block() &&
         reduction.type == other.type && reduction.op == other.op &&
         reduction.divide_by == other.divide_by && reduction.premultiply == other.premultiply &&
         reduction.scale == other.scale && reduction.scalar_bits == other.scalar_bits;
}

std::shared_ptr<float> Losses::host_zeros(size_t floats) {
  const auto memory = std::make_shared<std::vector<float>>(floats);
  return {memory, memory->data()};
}

// The entry of a call becomes the latest.
Losses::Entry* Losses::find(const Call& call) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.is_of(call); });
  if (it == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it);
  return &entries_.front();
}

void Losses::make_room(size_t bytes) {
  for (auto it = entries_.end(); bytes_ + bytes > most_bytes_;) {
    if (it == entries_.begin())
      fail(ncclInvalidUsage,
           "compression: graphs hold {} of the {} bytes of feedback that WEFT_COMPRESS_LOSSES "
           "allows; {} more do not fit",
           bytes_, most_bytes_, bytes);
    if ((--it)->captured) continue;
    bytes_ -= it->bytes;
    const auto oldest = it++;
    gone_.splice(gone_.end(), entries_, oldest);
  }
}

float* Losses::of(const Call& call, size_t inputs, size_t outputs, bool captured) {
  if (Entry* known = find(call)) {
    known->captured = known->captured || captured;
    return known->values.get();
  }
  const size_t bytes = (inputs + outputs) * sizeof(float);
  if (bytes > most_bytes_)
    fail(ncclInvalidUsage,
         "compression: feedback for {} elements needs {} bytes, WEFT_COMPRESS_LOSSES allows {}",
         inputs, bytes, most_bytes_);
  if (bytes_ + bytes > most_bytes_ && !std::exchange(warned_, true))
    WEFT_WARN(
        "compression: the buffers need more feedback than WEFT_COMPRESS_LOSSES allows ({} bytes): "
        "those that were unused for longest lose theirs",
        most_bytes_);
  make_room(bytes);
  entries_.push_front({call.kind, call.input, call.count, call.block(), call.reduction, bytes,
                       zeros_(inputs + outputs), captured});
  bytes_ += bytes;
  return entries_.front().values.get();
}

}  // namespace weft
