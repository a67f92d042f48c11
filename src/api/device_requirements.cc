// See device_requirements.h.
#include "src/api/device_requirements.h"

#include <algorithm>
#include <cstring>

#include "src/base/error.h"

namespace weft::api {
namespace {

[[noreturn]] void refuse_gin_wishes() {
  fail(ncclInvalidUsage,
       "Weft has no GIN, kernels reach ranks of their own host only: ask for lsaBarrierCount "
       "instead of GIN barriers, signals, counters and connections");
}

int int_at(const void* raw, size_t size, size_t at) {
  int value = 0;
  if (at + sizeof value <= size)
    std::memcpy(&value, static_cast<const char*>(raw) + at, sizeof value);
  return value;
}

}  // namespace

// Headers of 2.28 have no magic there, but the second list.
DeviceRequirements read_requirements(const void* raw) {
  CommRequirementsHead head;
  std::memcpy(&head, raw, sizeof head);
  const bool versioned =
      head.magic == kApiMagic && head.size >= kGinConnectionAt && head.size < 4096;
  DeviceRequirements all;
  all.version = versioned ? head.version : 22809;
  if (versioned && (head.version < 22900 || head.version >= 23100))
    fail(ncclInvalidUsage,
         "the program was built with device headers of version {}, Weft knows 2.28.9 to 2.30.x",
         head.version);
  CommRequirements body;
  std::memcpy(&body, static_cast<const char*>(raw) + (versioned ? sizeof head : 0), sizeof body);
  // Until 2.29.3 these barriers were for one host, too.
  all.lsa_barriers = body.lsa_barriers;
  bool gin = body.gin_enabled || body.gin_signals > 0 || body.gin_counters > 0;
  if (all.version < 22904) {
    all.lsa_barriers = std::max(all.lsa_barriers, body.barriers);
  } else {
    gin = gin || body.barriers > 0 || body.rail_gin_barriers > 0 ||
          int_at(raw, head.size, kGinConnectionAt) != 0 ||
          (all.version >= 23000 && int_at(raw, head.size, kWorldGinBarriersAt) > 0);
  }
  for (auto* one = body.resources; one != nullptr; one = one->next) {
    gin = gin || one->gin_signals > 0 || one->gin_counters > 0;
    all.buffers.push_back({one->bytes, one->align, one->handle});
  }
  if (gin) refuse_gin_wishes();
  bool multimem = body.lsa_multimem;
  for (auto* one = body.teams; one != nullptr; one = one->next)
    multimem = multimem || one->multimem;
  if (multimem)
    fail(ncclInvalidUsage,
         "Weft has no multimem (NVLink SHARP): ask for none, kernels can read and write the "
         "memory of each rank");
  if (all.lsa_barriers < 0) fail(ncclInvalidArgument, "lsaBarrierCount is {}", all.lsa_barriers);
  return all;
}

}  // namespace weft::api
