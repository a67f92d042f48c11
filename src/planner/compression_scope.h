// WEFT_COMPRESS=auto: over which links, and from which size on, a collective is compressed. Ranks
// measure at init; rank 0 decides, and remembers that in the cache folder, so that noise does not
// change the plans from run to run. Functions only; any thread may call.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/planner/time_line.h"
#include "src/schedule/collective_kind.h"

namespace weft {

// The classes of links between hosts: between machines, and between hosts of one machine
// (containers, NCCL_HOSTID). Links inside a host are never compressed.
enum class CodedLinks : uint8_t { kNone, kBetweenMachines, kBetweenHosts };
inline constexpr int kCodedLinks = 3;

// Smaller arrays are not compressed. Bytes of the whole array.
inline constexpr size_t kCompressFrom = 1u << 20;

struct CompressionScope {
  CodedLinks links = CodedLinks::kBetweenHosts;
  size_t from = kCompressFrom;  // bytes of the whole array
  bool operator==(const CompressionScope&) const = default;
};
// By collective.
using CompressionScopes = std::array<CompressionScope, kCollectiveKinds>;

// What ranks measured of one collective, by CodedLinks. Times of 0: not measured.
using CompressionTimes = std::array<TimeLine, kCodedLinks>;

// `before`: what was decided in an earlier run; nullptr: nothing. It changes only if that is
// clearly faster. The result is never more than 10% slower than another way, as measured.
CompressionScope decide(const CompressionTimes& times, const CompressionScope* before);

// A line per collective: "all_reduce hosts 1048576". parse throws Error(ncclInvalidUsage).
std::string write_scopes(const CompressionScopes& scopes);
CompressionScopes parse_scopes(std::string_view text);

// "between hosts from 1048576 bytes on"
std::string describe(const CompressionScope& scope);

}  // namespace weft
