// NCCL variables that do nothing in Weft. The log and the documentation print the reason of each. A
// variable that Config reads is removed from this list.
#include "src/base/variables.h"

namespace weft {

const std::vector<IdleVariable>& idle_variables() {
  static constexpr const char* kPlans = "plans are made for the machine at hand (WEFT_PLAN forces)";
  static constexpr const char* kVerbs = "the verbs plugin does not read it";
  static constexpr const char* kViaHost = "data of GPUs goes to the network through host memory";
  static constexpr const char* kNvls = "NVLink SHARP is not used";
  static constexpr const char* kPytorch = "PyTorch reads it, not this library";
  static constexpr const char* kRemoved = "NCCL itself has removed it";
  static constexpr const char* kPlugin = "it is for a plugin, which reads it by itself";
  static constexpr const char* kBuild = "it says what a container or a build was made with";
  static constexpr const char* kRas = "there is no RAS service; stalls and dead peers are logged";
  static const std::vector<IdleVariable> all = {
      {"NCCL_MIN_CTAS", "thread blocks are chosen by size, up to NCCL_MAX_CTAS"},
      {"NCCL_MIN_P2P_NCHANNELS", "thread blocks are chosen by size, up to NCCL_MAX_CTAS"},
      {"NCCL_MAX_P2P_NCHANNELS", "thread blocks are chosen by size, up to NCCL_MAX_CTAS"},
      {"NCCL_NCHANNELS_PER_NET_PEER", kPlans},
      {"NCCL_NTHREADS", "threads per block are chosen by protocol and size"},
      {"NCCL_LL128_NTHREADS", "threads per block are chosen by protocol and size"},
      {"NCCL_CGA_CLUSTER_SIZE", "thread blocks are not clustered"},
      {"NCCL_MAX_CGA_CLUSTER_SIZE", "thread blocks are not clustered"},
      {"NCCL_CROSS_NIC", kPlans},
      {"NCCL_GRAPH_FILE", "NCCL's graphs are not read; WEFT_SCHEDULES takes whole schedules"},
      {"NCCL_GRAPH_DUMP_FILE", "there are no such graphs; 'weft explain' shows the plans"},
      {"NCCL_GRAPH_DUMP_FILE_RANK", "there are no such graphs; 'weft explain' shows the plans"},
      {"NCCL_NVLS_ENABLE", kNvls},
      {"NCCL_NVLSTREE_ENABLE", kNvls},
      {"NCCL_NVLS_NCHANNELS", kNvls},
      {"NCCL_COLLNET_ENABLE", "reductions in the network are not used"},
      {"NCCL_COLLNET_NODE_THRESHOLD", "reductions in the network are not used"},
      {"NCCL_MNNVL_ENABLE", "NVLink between hosts is not used"},
      {"NCCL_MNNVL_UUID", "NVLink between hosts is not used"},
      {"NCCL_MNNVL_CLIQUE_ID", "NVLink between hosts is not used"},
      {"NCCL_PXN_DISABLE", "plans take no way through another GPU's NIC"},
      {"NCCL_P2P_PXN_LEVEL", "plans take no way through another GPU's NIC"},
      {"NCCL_P2P_NET_CHUNKSIZE", "WEFT_SLICE_BYTES sets how much moves at once"},
      {"NCCL_P2P_PCI_CHUNKSIZE", "WEFT_SLICE_BYTES sets how much moves at once"},
      {"NCCL_P2P_NVL_CHUNKSIZE", "WEFT_SLICE_BYTES sets how much moves at once"},
      {"NCCL_P2P_DIRECT_DISABLE", "peers' memory is used wherever a probe shows that it can be"},
      {"NCCL_P2P_USE_CUDA_MEMCPY", "WEFT_COPY_ENGINES=1 moves data without thread blocks"},
      {"NCCL_LL_BUFFSIZE", "NCCL_BUFFSIZE sets the size of rings; small data has fixed slots"},
      {"NCCL_LL128_BUFFSIZE", "NCCL_BUFFSIZE sets the size of rings; small data has fixed slots"},
      {"NCCL_CUMEM_ENABLE", "memory of every origin is shared as it allows"},
      {"NCCL_CUMEM_HOST_ENABLE", "host memory is shared by descriptors, without /dev/shm"},
      {"NCCL_NET_GDR_LEVEL", kViaHost},
      {"NCCL_NET_GDR_READ", kViaHost},
      {"NCCL_NET_GDR_C2C", kViaHost},
      {"NCCL_GDRCOPY_*", "GDRCopy is not used"},
      {"NCCL_DMABUF_ENABLE", kViaHost},
      {"NCCL_IB_*", kVerbs},
      {"NCCL_SHM_USE_CUDA_MEMCPY", "copies through host memory are made by kernels"},
      {"NCCL_IGNORE_CPU_AFFINITY", "only the proxy is bound, to the cores near the NIC"},
      {"NCCL_GRAPH_REGISTER", "graphs use what is registered, or lies in ncclMemAlloc memory"},
      {"NCCL_LAUNCH_MODE", "all operations of a group are launched together"},
      {"NCCL_LAUNCH_ORDER_IMPLICIT", "calls of a communicator always keep their order"},
      {"NCCL_RUNTIME_CONNECT", "peers are connected at init, networks when first used"},
      {"NCCL_RAS_*", kRas},
      {"NCCL_CHECK_POINTERS", "arguments are always checked, as far as that costs nothing"},
      {"NCCL_CHECK_MODE", "arguments are always checked, as far as that costs nothing"},
      {"NCCL_SET_THREAD_NAME", "threads always have names: weft-proxy, weft-control, weft-worker"},
      {"NCCL_MULTI_RANK_GPU_ENABLE", "several ranks may always share a GPU"},
      {"NCCL_SET_STACK_SIZE", "kernels use no stack to speak of"},
      {"NCCL_WORK_FIFO_*", "programs lie on the device, there is no such FIFO"},
      {"NCCL_WORK_ARGS_BYTES", "programs lie on the device, there is no such FIFO"},
      {"NCCL_OOB_NET_*", "the rendezvous is over TCP (NCCL_SOCKET_IFNAME)"},
      {"NCCL_UID_STAGGER_*", "ranks join one rendezvous at once"},
      {"NCCL_SINGLE_RING_THRESHOLD", kRemoved},
      {"NCCL_LL_THRESHOLD", kRemoved},
      {"NCCL_TREE_THRESHOLD", kRemoved},
      {"NCCL_THREAD_THRESHOLDS", kPlans},
      {"NCCL_SINGLE_PROC_MEM_REG_ENABLE", "memory of one process is always used where it is"},
      {"NCCL_SYM_*", "windows are used where they are; there are no such kernels"},
      {"NCCL_GIN_*", "kernels of users cannot start network transfers here"},
      {"NCCL_ENV_PLUGIN", "variables come from the environment and NCCL's files alone"},
      {"NCCL_PROFILE_EVENT_MASK", "it is for a profiler plugin, which reads it by itself"},
      {"NCCL_NET_SHARED_BUFFERS", "rings belong to one connection each"},
      {"NCCL_NET_SHARED_COMMS", "connections belong to one communicator each"},
      {"NCCL_NET_PLUGIN_REF_COUNT", "a network plugin stays loaded"},
      {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "communicators share nothing that grows"},
      {"NCCL_COMM_SHRINK_SHARE_RESOURCES", "communicators share nothing that grows"},
      {"NCCL_DEBUG_TIMESTAMP_*", "log lines carry no time"},
      {"NCCL_WARN_ENABLE_DEBUG_INFO", "NCCL_DEBUG=INFO shows what came before a warning"},
      {"NCCL_FASTRAK_*", kPlugin},
      {"NCCL_GPUDIRECTTCPX_*", kPlugin},
      {"NCCL_TUNER_CONFIG_PATH", kPlugin},
      {"NCCL_PLUGIN_*", kPlugin},
      {"NCCL_SHARP_*", kPlugin},
      {"NCCL_UCX_*", kPlugin},
      {"NCCL_ASYNC_ERROR_HANDLING", kPytorch},
      {"NCCL_BLOCKING_WAIT", kPytorch},
      {"NCCL_DESYNC_DEBUG", kPytorch},
      {"NCCL_ENABLE_TIMING", kPytorch},
      {"NCCL_CUDA_EVENT_CACHE*", kPytorch},
      {"NCCL_TESTS_*", "nccl-tests reads it, not this library"},
      {"NCCL_VERSION", kBuild},
      {"NCCL_HOME", kBuild},
      {"NCCL_ROOT*", kBuild},
      {"NCCL_LIB*", kBuild},
      {"NCCL_INCLUDE*", kBuild},
  };
  return all;
}

}  // namespace weft
