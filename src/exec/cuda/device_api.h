// Layouts of NCCL's device API. Users compile NVIDIA's device headers into their kernels, so all
// offsets must be NVIDIA's. Versions up to 2.29.7 and from 2.30 on differ as said below. Plain
// structs, the same for host and device. Fields of GIN and multimem stay zero: Weft has neither.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::cuda {

// What a window handle points to. Kernels read the first fields only: rank p of the LSA team has
// offset o at lsa_base + p * stride_4g * 4 GiB + o.
struct DeviceWindow {
  void* host = nullptr;
  char* lsa_base = nullptr;  // of rank 0 of the team
  int32_t lsa_rank = 0, world_rank = 0;
  uint32_t stride_4g = 0;
  uint32_t multimem_offset_4k = 0, gin_offset_4k = 0;
  void* gin_windows[4] = {};
  // From 2.30.4 on.
  void* gin_segments = nullptr;
  int32_t segments = 0;
};
static_assert(offsetof(DeviceWindow, lsa_base) == 8 && offsetof(DeviceWindow, lsa_rank) == 16 &&
              offsetof(DeviceWindow, stride_4g) == 24 &&
              offsetof(DeviceWindow, gin_windows) == 40 &&
              offsetof(DeviceWindow, gin_segments) == 72 && sizeof(DeviceWindow) == 88);

// Windows by address, for kernels that look one up.
struct DeviceWindowTable {
  static constexpr int kEntries = 32;
  struct Entry {
    uint64_t base = 0, size = 0;
    void* window = nullptr;
  } entries[kEntries];
  DeviceWindowTable* next = nullptr;
};
static_assert(sizeof(DeviceWindowTable) == 776);

struct ResourceHandle {
  uint32_t buffer = 0;  // offset in the resource window / 128
  int32_t count = 0;    // of barriers or slots
};

// The LSA part of an ncclDevComm, the same in all versions. It begins at 0, and from 2.30 on at 8,
// behind magic and version.
struct DeviceCommLsa {
  int32_t rank = 0, nranks = 1;
  uint32_t nranks_reciprocal = 0;
  int32_t lsa_rank = 0, lsa_size = 1;
  uint32_t lsa_size_reciprocal = 0;
  DeviceWindowTable* windows = nullptr;
  void* resource_window = nullptr;
  char resource_copy[72] = {};  // the first bytes of the DeviceWindow; from 2.30.7 on the last 8
                                // are the handle of a GIN barrier
  void* multimem = nullptr;
  ResourceHandle lsa_barrier;
};
static_assert(offsetof(DeviceCommLsa, windows) == 24 &&
              offsetof(DeviceCommLsa, resource_copy) == 40 &&
              offsetof(DeviceCommLsa, lsa_barrier) == 120 && sizeof(DeviceCommLsa) == 128);

// For divisions by multiplication, as the headers do them.
constexpr uint32_t reciprocal(uint32_t x) {
  return ~uint32_t{0} / x + ((x & (x - 1)) == 0 ? 1 : 0);
}

}  // namespace weft::cuda
