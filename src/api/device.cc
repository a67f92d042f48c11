// Device communicators of NCCL 2.28 to 2.30, with which kernels of one host communicate themselves
// by loads and stores (LSA). Users compile NVIDIA's device headers; this fills the structs that
// those read. There is no GIN and no multimem.
#include <algorithm>
#include <cstring>
#include <memory>

#include "include/nccl_device.h"
#include "src/api/checks.h"
#include "src/api/device_requirements.h"
#include "src/api/guard.h"
#include "src/base/log.h"
#include "src/comm/group.h"
#include "src/exec/cuda/device_api.h"
#include "src/exec/cuda/gpu_executor.h"

namespace weft::api {
namespace {

constexpr size_t kBufferUnit = 128;  // of offsets in the resource window

ncclResult_t refuse_gin(const char* function) {
  return report(function, ncclInvalidUsage,
                "Weft has no GIN: kernels reach ranks of their own host only, by loads and stores");
}

// Words of LSA barriers: two epochs, one word for multimem, and one per rank.
size_t barrier_bytes(int barriers, int nranks) {
  return static_cast<size_t>(barriers) * static_cast<size_t>(3 + nranks) * sizeof(uint32_t);
}

// Gives every buffer its place. Returns the bytes of all.
size_t place_buffers(const DeviceRequirements& wanted, int lsa_size, uint32_t& barriers_at) {
  size_t end = barrier_bytes(wanted.lsa_barriers, lsa_size);
  barriers_at = 0;
  for (const DeviceRequirements::Buffer& buffer : wanted.buffers) {
    const size_t align = std::max(kBufferUnit, buffer.align);
    const size_t begin = (end + align - 1) / align * align;
    if (begin / kBufferUnit > UINT32_MAX)
      fail(ncclInvalidArgument, "the resource buffers have more than {} bytes", begin);
    if (buffer.handle != nullptr)
      *buffer.handle = static_cast<ncclDevResourceHandle_t>(begin / kBufferUnit);
    end = begin + buffer.bytes;
  }
  return end;
}

// After a failure of the GPU nothing can be freed.
void free_quietly(void* memory) noexcept {
  try {
    cuda::release(memory);
  } catch (const Error& error) {
    WEFT_INFO(kAlloc, "{}", error.what());
  }
}

// All ranks register their buffers together.
void fill(ncclComm& comm, const DeviceRequirements& wanted, void* out) {
  const Use use(comm);
  Windows& windows = use->one_sided().windows();
  if (!windows.has_device_api())
    fail(ncclInvalidUsage, "{}",
         use->on_gpu() ? "the GPUs of a host must reach each other's memory, and the driver must "
                         "be able to share it (cuMemCreate with file descriptors)"
                       : "kernels need a GPU, and this process is in host mode");
  cuda::DeviceCommLsa lsa;
  lsa.rank = comm.rank;
  lsa.nranks = comm.nranks;
  lsa.nranks_reciprocal = cuda::reciprocal(static_cast<uint32_t>(comm.nranks));
  lsa.lsa_rank = windows.lsa_rank();
  lsa.lsa_size = windows.lsa_size();
  lsa.lsa_size_reciprocal = cuda::reciprocal(static_cast<uint32_t>(windows.lsa_size()));
  lsa.windows = windows.table();
  lsa.lsa_barrier.count = wanted.lsa_barriers;
  const size_t bytes = place_buffers(wanted, windows.lsa_size(), lsa.lsa_barrier.buffer);
  if (bytes > 0) {
    std::shared_ptr<void> memory;
    windows.together("making a device communicator", [&] {
      memory = {cuda::allocate_zeroed(use->gpu()->device(), bytes), free_quietly};
    });
    lsa.resource_window = windows.add(memory.get(), bytes, memory);
    try {
      std::memcpy(lsa.resource_copy, &windows.device_window(lsa.resource_window), 40);
    } catch (...) {
      windows.remove(lsa.resource_window);
      throw;
    }
  } else {
    windows.meet("a device communicator without buffers");
  }
  std::memset(out, 0, wanted.comm_bytes());
  if (wanted.lsa_at() > 0) {
    const unsigned head[2] = {kApiMagic, wanted.version};
    std::memcpy(out, head, sizeof head);
  }
  std::memcpy(static_cast<char*>(out) + wanted.lsa_at(), &lsa, sizeof lsa);
}

// A device communicator of any version.
cuda::DeviceCommLsa lsa_of(const void* device_comm) {
  unsigned magic = 0;
  std::memcpy(&magic, device_comm, sizeof magic);
  cuda::DeviceCommLsa lsa;
  std::memcpy(&lsa, static_cast<const char*>(device_comm) + (magic == kApiMagic ? 8 : 0),
              sizeof lsa);
  return lsa;
}

}  // namespace

WEFT_EXPORT(ncclResult_t, DevCommCreate,
            (ncclComm_t comm, const ncclDevCommRequirements_t* reqs, ncclDevComm_t* outDevComm)) {
  return guard("ncclDevCommCreate", [&] {
    check_handle(comm);
    check_pointer("reqs", reqs);
    check_pointer("outDevComm", outDevComm);
    const DeviceRequirements wanted = read_requirements(reqs);
    run_together(*comm, [=] { fill(*comm, wanted, outDevComm); });
  });
}

WEFT_EXPORT(ncclResult_t, DevCommDestroy, (ncclComm_t comm, const ncclDevComm_t* devComm)) {
  return guard("ncclDevCommDestroy", [&] {
    check_handle(comm);
    check_pointer("devComm", devComm);
    const cuda::DeviceCommLsa lsa = lsa_of(devComm);
    if (lsa.resource_window == nullptr) return;
    const Use use(*comm, false);
    Windows& windows = use->one_sided().windows();
    if (!windows.remove(lsa.resource_window))
      fail(ncclInvalidArgument, "devComm is none of comm, or is destroyed already");
  });
}

WEFT_EXPORT(ncclResult_t, LsaBarrierCreateRequirement,
            (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
             ncclDevResourceRequirements_t* outReq)) {
  return guard("ncclLsaBarrierCreateRequirement", [&] {
    check_pointer("outHandle", outHandle);
    check_pointer("outReq", outReq);
    if (nBarriers < 0) fail(ncclInvalidArgument, "nBarriers is {}", nBarriers);
    *outReq = {};
    outReq->bufferSize = barrier_bytes(nBarriers, team.nRanks);
    outReq->bufferAlign = alignof(uint32_t);
    outReq->outBufferHandle = &outHandle->bufHandle;
    outHandle->nBarriers = nBarriers;
  });
}

WEFT_EXPORT(ncclResult_t, GinBarrierCreateRequirement,
            (ncclComm_t, ncclTeam_t, int, void*, void*)) {
  return refuse_gin("ncclGinBarrierCreateRequirement");
}

// Per block an epoch and two generations of slots, of 16 bytes each.
WEFT_EXPORT(ncclResult_t, LLA2ACreateRequirement,
            (int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
             ncclDevResourceRequirements_t* outReq)) {
  return guard("ncclLLA2ACreateRequirement", [&] {
    check_pointer("outHandle", outHandle);
    check_pointer("outReq", outReq);
    if (nBlocks < 0 || nSlots < 0)
      fail(ncclInvalidArgument, "nBlocks is {}, nSlots is {}", nBlocks, nSlots);
    *outReq = {};
    outReq->bufferSize = static_cast<size_t>(nBlocks) * (1 + 2 * static_cast<size_t>(nSlots)) * 16;
    outReq->bufferAlign = 16;
    outReq->outBufferHandle = &outHandle->bufHandle;
    outHandle->nSlots = static_cast<uint32_t>(nSlots);
  });
}

// Slots have 16 bytes, 8 of them payload.
WEFT_EXPORT(int, LLA2ACalcSlots, (int maxElts, int maxEltSize)) {
  return maxElts * ((maxEltSize + 7) / 8);
}

WEFT_EXPORT(size_t, GetResourceBufferOffset, (ncclDevResourceHandle_t h)) {
  return size_t{h} * kBufferUnit;
}

WEFT_EXPORT(ncclResult_t, GinOutboxCreateRequirement, (int, int, void*, void*)) {
  return refuse_gin("ncclGinOutboxCreateRequirement");
}
WEFT_EXPORT(ncclResult_t, GinInboxA2ACreateRequirement, (ncclTeam_t, int, int, void*, void*)) {
  return refuse_gin("ncclGinInboxA2ACreateRequirement");
}

}  // namespace weft::api
