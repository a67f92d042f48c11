// What a communicator can do: ncclCommQueryProperties.
#include <algorithm>
#include <cstring>

#include "include/nccl_device.h"
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

// It grows at the end only, as ncclConfig_t does. NCCL 2.29.2 ends after ginType.
static_assert(offsetof(ncclCommProperties, ginType) == 36 && sizeof(ncclCommProperties) == 56);

// Weft has no multimem and no GIN. Headers before 2.30 knew the device API of several hosts with
// GIN only.
ncclCommProperties properties_of(const ncclComm& comm, Communicator& impl, unsigned version) {
  const Windows& windows = impl.one_sided().windows();
  ncclCommProperties all{};
  all.rank = comm.rank;
  all.nRanks = comm.nranks;
  all.cudaDev = comm.device;
  all.nvmlDev = impl.on_gpu() ? nvml_index(comm.device) : -1;
  all.nLsaTeams = comm.nranks / windows.lsa_size();
  all.deviceApiSupport = windows.has_device_api() && (version >= 23000 || all.nLsaTeams == 1);
  all.hostRmaSupport = windows.complete();
  return all;
}

}  // namespace

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
    const ncclCommProperties all = properties_of(*comm, *use, props->version);
    // A caller built against an older header has a shorter struct.
    constexpr size_t kFirst = offsetof(ncclCommProperties, rank);
    std::memcpy(&props->rank, &all.rank, std::min(props->size, sizeof all) - kFirst);
  });
}

}  // namespace weft::api
