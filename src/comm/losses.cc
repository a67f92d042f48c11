// See losses.h.
#include "src/comm/losses.h"

#include <algorithm>
#include <utility>

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

float* Losses::of(const Call& call, size_t inputs, size_t outputs) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.is_of(call); });
  if (it != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, it);
    return entries_.front().values.data();
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
  while (bytes_ + bytes > most_bytes_) {
    bytes_ -= entries_.back().values.size() * sizeof(float);
    gone_.splice(gone_.end(), entries_, std::prev(entries_.end()));
  }
  entries_.push_front({call.kind, call.input, call.count, call.block(), call.reduction,
                       std::vector<float>(inputs + outputs)});
  bytes_ += bytes;
  return entries_.front().values.data();
}

}  // namespace weft
