// The structs of the device API in src, compared with the CUDA toolkit's headers of 2.28.9. Later
// versions are compared with facts.
#include <nccl.h>
#include <nccl_device.h>

#include <cstdio>

#include "src/api/device_requirements.h"
#include "src/exec/cuda/device_api.h"

using namespace weft;

#define SAME(OURS, FIELD, THEIRS, THEIR_FIELD)                            \
  static_assert(offsetof(OURS, FIELD) == offsetof(THEIRS, THEIR_FIELD) && \
                sizeof(OURS::FIELD) == sizeof(THEIRS::THEIR_FIELD))

using cuda::DeviceCommLsa;
using cuda::DeviceWindow;
using cuda::DeviceWindowTable;
using cuda::ResourceHandle;

// The device struct may be longer than that of old headers: kernels have pointers to it.
static_assert(sizeof(DeviceWindow) >= sizeof(ncclWindow_vidmem));
SAME(DeviceWindow, lsa_base, ncclWindow_vidmem, lsaFlatBase);
SAME(DeviceWindow, lsa_rank, ncclWindow_vidmem, lsaRank);
SAME(DeviceWindow, world_rank, ncclWindow_vidmem, worldRank);
SAME(DeviceWindow, stride_4g, ncclWindow_vidmem, stride4G);
SAME(DeviceWindow, multimem_offset_4k, ncclWindow_vidmem, mcOffset4K);
SAME(DeviceWindow, gin_offset_4k, ncclWindow_vidmem, ginOffset4K);
SAME(DeviceWindow, gin_windows, ncclWindow_vidmem, ginWins);

static_assert(sizeof(DeviceWindowTable) == sizeof(ncclDevCommWindowTable));
SAME(DeviceWindowTable, entries, ncclDevCommWindowTable, entries);
SAME(DeviceWindowTable, next, ncclDevCommWindowTable, next);
SAME(DeviceWindowTable::Entry, base, ncclDevCommWindowTable::Entry, base);
SAME(DeviceWindowTable::Entry, size, ncclDevCommWindowTable::Entry, size);
SAME(DeviceWindowTable::Entry, window, ncclDevCommWindowTable::Entry, window);

static_assert(api::DeviceRequirements{.version = 22809}.comm_bytes() == sizeof(ncclDevComm));
static_assert(api::DeviceRequirements{.version = 22809}.lsa_at() == 0);
SAME(DeviceCommLsa, rank, ncclDevComm, rank);
SAME(DeviceCommLsa, nranks, ncclDevComm, nRanks);
SAME(DeviceCommLsa, nranks_reciprocal, ncclDevComm, nRanks_rcp32);
SAME(DeviceCommLsa, lsa_rank, ncclDevComm, lsaRank);
SAME(DeviceCommLsa, lsa_size, ncclDevComm, lsaSize);
SAME(DeviceCommLsa, lsa_size_reciprocal, ncclDevComm, lsaSize_rcp32);
SAME(DeviceCommLsa, windows, ncclDevComm, windowTable);
SAME(DeviceCommLsa, resource_window, ncclDevComm, resourceWindow);
SAME(DeviceCommLsa, resource_copy, ncclDevComm, resourceWindow_inlined);
SAME(DeviceCommLsa, multimem, ncclDevComm, lsaMultimem);
SAME(DeviceCommLsa, lsa_barrier, ncclDevComm, lsaBarrier);
static_assert(sizeof(DeviceCommLsa) == offsetof(ncclDevComm, railGinBarrier));

static_assert(sizeof(ResourceHandle) == sizeof(ncclLsaBarrierHandle));
SAME(ResourceHandle, buffer, ncclLsaBarrierHandle, bufHandle);
SAME(ResourceHandle, count, ncclLsaBarrierHandle, nBarriers);
SAME(ResourceHandle, buffer, ncclLLA2AHandle, bufHandle);
SAME(ResourceHandle, count, ncclLLA2AHandle, nSlots);

using api::CommRequirements;
using api::ResourceRequirement;
using api::TeamRequirement;
static_assert(sizeof(CommRequirements) == sizeof(ncclDevCommRequirements));
SAME(CommRequirements, resources, ncclDevCommRequirements, resourceRequirementsList);
SAME(CommRequirements, teams, ncclDevCommRequirements, teamRequirementsList);
SAME(CommRequirements, lsa_multimem, ncclDevCommRequirements, lsaMultimem);
SAME(CommRequirements, barriers, ncclDevCommRequirements, barrierCount);
SAME(CommRequirements, lsa_barriers, ncclDevCommRequirements, lsaBarrierCount);
SAME(CommRequirements, rail_gin_barriers, ncclDevCommRequirements, railGinBarrierCount);
SAME(CommRequirements, lla2a_blocks, ncclDevCommRequirements, lsaLLA2ABlockCount);
SAME(CommRequirements, lla2a_slots, ncclDevCommRequirements, lsaLLA2ASlotCount);
SAME(CommRequirements, gin_enabled, ncclDevCommRequirements, ginForceEnable);
SAME(CommRequirements, gin_contexts, ncclDevCommRequirements, ginContextCount);
SAME(CommRequirements, gin_signals, ncclDevCommRequirements, ginSignalCount);
SAME(CommRequirements, gin_counters, ncclDevCommRequirements, ginCounterCount);
static_assert(sizeof(ResourceRequirement) == sizeof(ncclDevResourceRequirements));
SAME(ResourceRequirement, bytes, ncclDevResourceRequirements, bufferSize);
SAME(ResourceRequirement, align, ncclDevResourceRequirements, bufferAlign);
SAME(ResourceRequirement, handle, ncclDevResourceRequirements, outBufferHandle);
SAME(ResourceRequirement, gin_signals, ncclDevResourceRequirements, ginSignalCount);
SAME(ResourceRequirement, gin_counters, ncclDevResourceRequirements, ginCounterCount);
static_assert(sizeof(TeamRequirement) == sizeof(ncclTeamRequirements));
SAME(TeamRequirement, nranks, ncclTeamRequirements, team.nRanks);
SAME(TeamRequirement, multimem, ncclTeamRequirements, multimem);
SAME(TeamRequirement, multimem_handle, ncclTeamRequirements, outMultimemHandle);

// Facts of 2.29.2 to 2.30.7: how long an ncclDevComm is, and where the LSA part begins.
constexpr bool is(unsigned version, size_t bytes, size_t lsa_at) {
  const api::DeviceRequirements wanted{.version = version};
  return wanted.comm_bytes() == bytes && wanted.lsa_at() == lsa_at;
}
static_assert(is(22902, 200, 0) && is(22903, 200, 0) && is(22907, 224, 0));
static_assert(is(23003, 240, 8) && is(23004, 240, 8) && is(23007, 240, 8));
static_assert(api::kGinConnectionAt == 72 && api::kWorldGinBarriersAt == 88);

// Divisions as kernels do them.
constexpr bool divides(uint32_t x) {
  for (uint32_t n = 0; n < 4096; n++) {
    uint32_t quotient = static_cast<uint32_t>(uint64_t{n} * cuda::reciprocal(x) >> 32);
    if (n - quotient * x >= x) quotient++;
    if (quotient != n / x) return false;
  }
  return true;
}
static_assert(divides(2) && divides(3) && divides(5) && divides(8) && divides(72));
static_assert(cuda::reciprocal(6) == nccl::utility::idivRcp32(6) &&
              cuda::reciprocal(8) == nccl::utility::idivRcp32(8));

int main() { std::puts("OK: compiled"); }
