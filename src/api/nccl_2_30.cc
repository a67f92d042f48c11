// Functions of communicators that came with NCCL 2.29 and 2.30. ncclCommQueryProperties works. Weft
// does not have the others yet: they return ncclInvalidUsage with a text.
#include "src/api/nccl_2_30.h"

#include <algorithm>
#include <cstring>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/topology/sources/discover.h"
#include "src/topology/sources/nvml.h"

namespace weft::api {
namespace {

// NVML's index of a CUDA device. -1: unknown.
int nvml_index(int device) {
  const std::string bus = cuda::bus_id(device);
  for (const NvmlGpu& gpu : read_nvml(Discovery{}.nvml).gpus)
    if (gpu.bus == bus) return gpu.index;
  return -1;
}

// Weft has no device API, no multimem, no GIN and no one-sided calls. A rank is alone in its LSA
// team (ncclTeamLsa).
ncclCommProperties properties_of(const ncclComm& comm, bool on_gpu) {
  ncclCommProperties all{};
  all.rank = comm.rank;
  all.nRanks = comm.nranks;
  all.cudaDev = comm.device;
  all.nvmlDev = on_gpu ? nvml_index(comm.device) : -1;
  all.nLsaTeams = comm.nranks;
  return all;
}

constexpr const char* kSendRecv = "use ncclSend and ncclRecv";
constexpr const char* kNewCommunicator =
    "make a communicator of all ranks with ncclGetUniqueId and ncclCommInitRank";
constexpr const char* kDestroy = "destroy the communicator to free its memory and make a new one";

}  // namespace

ncclResult_t refuse_new(const char* function, const char* instead) noexcept {
  return guard(function, [&] {
    fail(ncclInvalidUsage, "Weft does not have this function of NCCL 2.29/2.30 yet: {}", instead);
  });
}

WEFT_EXPORT(ncclResult_t, CommQueryProperties, (ncclComm_t comm, ncclCommProperties_t* props)) {
  return guard("ncclCommQueryProperties", [&] {
    check_handle(comm);
    check_pointer("props", props);
    constexpr unsigned kMagic = 0xcafebeef;
    if (props->magic != kMagic)
      fail(ncclInvalidUsage,
           "props: magic is {:#x}; initialize it with NCCL_COMM_PROPERTIES_INITIALIZER",
           props->magic);
    if (props->size < offsetof(ncclCommProperties, nLsaTeams))
      fail(ncclInvalidArgument, "props: size is {}, too small for any version", props->size);
    const Use use(*comm, false);
    const ncclCommProperties all = properties_of(*comm, use->on_gpu());
    // A caller built against an older header has a shorter struct.
    constexpr size_t kFirst = offsetof(ncclCommProperties, rank);
    std::memcpy(&props->rank, &all.rank, std::min(props->size, sizeof all) - kFirst);
  });
}

WEFT_EXPORT(ncclResult_t, CommGetUniqueId, (ncclComm_t, ncclUniqueId* uniqueId)) {
  if (uniqueId != nullptr) *uniqueId = {};
  return refuse_new("ncclCommGetUniqueId", kNewCommunicator);
}

WEFT_EXPORT(ncclResult_t, CommGrow,
            (ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t* newcomm, ncclConfig_t*)) {
  if (newcomm != nullptr) *newcomm = nullptr;
  return refuse_new("ncclCommGrow", kNewCommunicator);
}

WEFT_EXPORT(ncclResult_t, CommSuspend, (ncclComm_t, int)) {
  return refuse_new("ncclCommSuspend", kDestroy);
}

WEFT_EXPORT(ncclResult_t, CommResume, (ncclComm_t)) {
  return refuse_new("ncclCommResume", "no communicator of Weft is ever suspended");
}

WEFT_EXPORT(ncclResult_t, CommMemStats, (ncclComm_t, ncclCommMemStat_t, uint64_t* value)) {
  if (value != nullptr) *value = 0;
  return refuse_new("ncclCommMemStats", "cudaMemGetInfo shows the free memory of the GPU");
}

WEFT_EXPORT(ncclResult_t, PutSignal,
            (const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned,
             ncclComm_t, cudaStream_t)) {
  return refuse_new("ncclPutSignal", kSendRecv);
}

WEFT_EXPORT(ncclResult_t, Signal, (int, int, int, unsigned, ncclComm_t, cudaStream_t)) {
  return refuse_new("ncclSignal", kSendRecv);
}

WEFT_EXPORT(ncclResult_t, WaitSignal, (int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t)) {
  return refuse_new("ncclWaitSignal", kSendRecv);
}

}  // namespace weft::api
