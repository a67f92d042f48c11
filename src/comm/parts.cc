// See parts.h.
#include "src/comm/parts.h"

#include <algorithm>

namespace weft {
namespace {

// Parts begin where cache lines do, if blocks do.
constexpr size_t kPartBytes = 128;

}  // namespace

PartRange part_range(size_t count, size_t element, int parts, int part) {
  const size_t unit = std::max<size_t>(1, kPartBytes / element), n = static_cast<size_t>(parts);
  const size_t units = count / unit + (count % unit != 0 ? 1 : 0);
  const size_t length = (units / n + (units % n != 0 ? 1 : 0)) * unit;
  const auto p = static_cast<size_t>(part);
  const size_t begin = p > 0 && length > count / p ? count : std::min(count, p * length);
  return {begin, std::min(length, count - begin)};
}

std::vector<Call> parts_of(const Call& call, int parts, const uint32_t* ready, uint32_t* done) {
  const size_t element = element_size(call.reduction.type);
  std::vector<Call> all(static_cast<size_t>(parts), call);
  for (int p = 0; p < parts; p++) {
    Call& part = all[static_cast<size_t>(p)];
    const PartRange range = part_range(call.count, element, parts, p);
    part.count = range.count;
    part.stride = call.count;
    if (call.input != nullptr)
      part.input = static_cast<const std::byte*>(call.input) + range.begin * element;
    if (call.output != nullptr)
      part.output = static_cast<std::byte*>(call.output) + range.begin * element;
    part.ready = ready == nullptr ? nullptr : ready + p;
    part.done = done == nullptr ? nullptr : done + p;
  }
  return all;
}

}  // namespace weft
