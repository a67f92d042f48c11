// Compares device memory with repeating tiles, a tile at a time.
#include "perf/common/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "perf/common/device.h"

namespace weft::perf {
namespace {

constexpr unsigned char kPoison = 0xA5;

// Calls visit(offset in the slice, offset in the tile, count) for each run that does not wrap.
template <typename Visit>
void for_each_run(const Slice& slice, Visit visit) {
  size_t at = 0;
  size_t in_tile = slice.first % kPeriod;
  while (at < slice.count) {
    const size_t count = std::min(slice.count - at, kPeriod - in_tile);
    visit(at, in_tile, count);
    at += count;
    in_tile = 0;
  }
}

bool same(const std::byte* got, const std::byte* want, ncclDataType_t type, double tolerance) {
  if (std::memcmp(got, want, data_type(type).size) == 0) return true;
  if (tolerance == 0) return false;
  const double wanted = decode(type, want);
  return std::fabs(decode(type, got) - wanted) <= tolerance * std::fabs(wanted);
}

}  // namespace

void write_slice(std::byte* device, const Slice& slice, ncclDataType_t type) {
  const size_t size = data_type(type).size;
  for_each_run(slice, [&](size_t at, size_t in_tile, size_t count) {
    device::copy_in(device + at * size, slice.tile.data() + in_tile * size, count * size);
  });
}

size_t count_wrong(const std::byte* device, const Slice& slice, ncclDataType_t type,
                   double tolerance) {
  const size_t size = data_type(type).size;
  std::vector<std::byte> got(std::min(slice.count, kPeriod) * size);
  size_t wrong = 0;
  for_each_run(slice, [&](size_t at, size_t in_tile, size_t count) {
    const std::byte* want = slice.tile.data() + in_tile * size;
    device::copy_out(got.data(), device + at * size, count * size);
    if (std::memcmp(got.data(), want, count * size) == 0) return;
    for (size_t i = 0; i < count; ++i) {
      if (!same(&got[i * size], want + i * size, type, tolerance)) ++wrong;
    }
  });
  return wrong;
}

void poison(std::byte* device, size_t bytes) { device::fill(device, kPoison, bytes); }

size_t count_touched(const std::byte* device, size_t bytes) {
  std::vector<std::byte> got(bytes);
  device::copy_out(got.data(), device, bytes);
  return static_cast<size_t>(
      std::count_if(got.begin(), got.end(), [](std::byte b) { return b != std::byte{kPoison}; }));
}

}  // namespace weft::perf
