/* Uses nccl.h in any language and standard. It is the first include. */
#include "nccl.h"

ncclResult_t use(ncclComm_t comm, cudaStream_t stream, float* data);

ncclResult_t use(ncclComm_t comm, cudaStream_t stream, float* data) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclUniqueId id;
  ncclResult_t result = ncclGetUniqueId(&id);
  config.blocking = 0;
  if (result != ncclSuccess) return result;
  result = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  if (result != ncclSuccess) return result;
  result = pncclGroupSimulateEnd(&info);
  if (result != ncclSuccess) return result;
  return ncclAllReduce(data, data, NCCL_VERSION(2, 28, 9), ncclFloat8e4m3, ncclSum, comm, stream);
}
