// The device API of NCCL 2.28 to 2.30, with which kernels communicate themselves. Weft does not
// support it. Every function that would create an object or give a pointer fails and names an
// alternative.
#include "src/api/guard.h"
#include "src/api/nccl_2_30.h"

namespace weft::api {
namespace {

ncclResult_t refuse(const char* function) {
  return report(function, ncclInvalidUsage,
                "Weft has no device API, kernels cannot communicate by themselves: use the host "
                "calls (ncclAllReduce, ...; windows and registered buffers are used where they "
                "are), or in PyTorch the symmetric memory backend CUDA instead of NCCL");
}

ncclResult_t refuse_pointer(const char* function, void** out) {
  if (out != nullptr) *out = nullptr;
  return refuse(function);
}

}  // namespace

WEFT_EXPORT(ncclResult_t, DevCommCreate, (ncclComm_t, const void*, void*)) {
  return refuse("ncclDevCommCreate");
}
WEFT_EXPORT(ncclResult_t, DevCommDestroy, (ncclComm_t, const void*)) {
  return refuse("ncclDevCommDestroy");
}
WEFT_EXPORT(ncclResult_t, LsaBarrierCreateRequirement, (ncclTeam_t, int, void*, void*)) {
  return refuse("ncclLsaBarrierCreateRequirement");
}
WEFT_EXPORT(ncclResult_t, GinBarrierCreateRequirement,
            (ncclComm_t, ncclTeam_t, int, void*, void*)) {
  return refuse("ncclGinBarrierCreateRequirement");
}
WEFT_EXPORT(ncclResult_t, LLA2ACreateRequirement, (int, int, void*, void*)) {
  return refuse("ncclLLA2ACreateRequirement");
}

// Slots have 16 bytes, 8 of them payload.
WEFT_EXPORT(int, LLA2ACalcSlots, (int maxElts, int maxEltSize)) {
  return maxElts * ((maxEltSize + 7) / 8);
}

// Offsets of resource buffers are counted in 128 bytes.
WEFT_EXPORT(size_t, GetResourceBufferOffset, (ncclDevResourceHandle_t h)) {
  return size_t{h} * 128;
}

WEFT_EXPORT(ncclResult_t, GinOutboxCreateRequirement, (int, int, void*, void*)) {
  return refuse("ncclGinOutboxCreateRequirement");
}
WEFT_EXPORT(ncclResult_t, GinInboxA2ACreateRequirement, (ncclTeam_t, int, int, void*, void*)) {
  return refuse("ncclGinInboxA2ACreateRequirement");
}

WEFT_EXPORT(ncclResult_t, GetLsaDevicePointer, (ncclWindow_t, size_t, int, void** outPtr)) {
  return refuse_pointer("ncclGetLsaDevicePointer", outPtr);
}
WEFT_EXPORT(ncclResult_t, GetPeerDevicePointer, (ncclWindow_t, size_t, int, void** outPtr)) {
  return refuse_pointer("ncclGetPeerDevicePointer", outPtr);
}
WEFT_EXPORT(ncclResult_t, GetLsaMultimemDevicePointer, (ncclWindow_t, size_t, void** outPtr)) {
  return refuse_pointer("ncclGetLsaMultimemDevicePointer", outPtr);
}
WEFT_EXPORT(ncclResult_t, GetMultimemDevicePointer,
            (ncclWindow_t, size_t, ncclMultimemHandle_t, void** outPtr)) {
  return refuse_pointer("ncclGetMultimemDevicePointer", outPtr);
}

}  // namespace weft::api
