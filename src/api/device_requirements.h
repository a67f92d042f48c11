// What a program asks of a device communicator. Layouts are those of NCCL 2.28.9 to 2.30.x.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::api {

// Programs make lists of these. The same in all versions.
struct ResourceRequirement {
  ResourceRequirement* next;
  size_t bytes, align;
  uint32_t* handle;  // set to where the buffer is
  int gin_signals, gin_counters;
  uint32_t *first_gin_signal, *first_gin_counter;
};
static_assert(offsetof(ResourceRequirement, handle) == 24 && sizeof(ResourceRequirement) == 56);

struct TeamRequirement {
  TeamRequirement* next;
  int nranks, rank, stride;
  bool multimem;
  void* multimem_handle;
};
static_assert(offsetof(TeamRequirement, multimem) == 20 && sizeof(TeamRequirement) == 32);

// From 2.29 on this comes behind size, magic and version, and more fields follow.
struct CommRequirements {
  ResourceRequirement* resources;
  TeamRequirement* teams;
  bool lsa_multimem;
  int barriers, lsa_barriers, rail_gin_barriers;
  int lla2a_blocks, lla2a_slots;  // nothing is made of these
  bool gin_enabled;
  int gin_contexts, gin_signals, gin_counters;
};
static_assert(offsetof(CommRequirements, barriers) == 20 &&
              offsetof(CommRequirements, gin_enabled) == 40 && sizeof(CommRequirements) == 56);
struct CommRequirementsHead {
  size_t size;
  unsigned magic, version;
};
// Fields behind it: from 2.29.5 on, and from 2.30 on.
inline constexpr size_t kGinConnectionAt = sizeof(CommRequirementsHead) + sizeof(CommRequirements);
inline constexpr size_t kWorldGinBarriersAt = kGinConnectionAt + 16;

// A program's requirements, copied: a group makes the communicator after the call has returned.
struct DeviceRequirements {
  unsigned version = 0;  // of the headers; 22809: they say none
  int lsa_barriers = 0;
  struct Buffer {
    size_t bytes = 0, align = 0;
    uint32_t* handle = nullptr;
  };
  std::vector<Buffer> buffers;

  // The size of the ncclDevComm of that version, and where its LSA part begins.
  constexpr size_t comm_bytes() const {
    return version >= 23000 ? 240 : version >= 22904 ? 224 : 200;
  }
  constexpr size_t lsa_at() const { return version >= 23000 ? 8 : 0; }
};

// Throws Error with a text if the program asks for GIN or multimem, or has headers of a version
// that is not known.
DeviceRequirements read_requirements(const void* raw);

inline constexpr unsigned kApiMagic = 0xcafebeef;

}  // namespace weft::api
