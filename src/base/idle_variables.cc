// NCCL variables that do nothing in Weft. The log and the documentation print the reason of each. A
// variable that Config reads is removed from this list.
#include "src/base/variables.h"

namespace weft {

const std::vector<IdleVariable>& idle_variables() {
  static constexpr const char* kPlans =
      "Weft plans for the machine it finds; WEFT_PLAN forces a plan";
  static constexpr const char* kRoutes =
      "the plan's routes name the NICs, and cross rails where the machine has no other way";
  static constexpr const char* kRelays =
      "a plan goes through another GPU to its NIC where the machine makes that faster";
  static constexpr const char* kVerbs = "the verbs plugin does not read it";
  static constexpr const char* kBothWays = "a NIC that writes into a GPU's memory also reads it";
  static constexpr const char* kNvls = "NVLink SHARP is not used";
  static constexpr const char* kPytorch = "PyTorch reads it, not this library";
  static constexpr const char* kRemoved = "NCCL has removed it";
  static constexpr const char* kPlugin = "a plugin reads it, not this library";
  static constexpr const char* kBuild = "it describes a container or a build";
  static constexpr const char* kRas =
      "the RAS port asks the processes of this host, which answer at once";
  static const std::vector<IdleVariable> all = {
      {"NCCL_MIN_NCHANNELS", "each plan has its own number of channels, up to NCCL_MAX_NCHANNELS",
       true},
      {"NCCL_MIN_CTAS", "thread blocks are chosen by size, up to NCCL_MAX_CTAS", true},
      {"NCCL_MIN_P2P_NCHANNELS", "thread blocks are chosen by size, up to NCCL_MAX_CTAS"},
      {"NCCL_MAX_P2P_NCHANNELS", "thread blocks are chosen by size, up to NCCL_MAX_CTAS"},
      {"NCCL_NCHANNELS_PER_NET_PEER", kPlans, true},
      {"NCCL_NTHREADS", "threads per block are chosen by protocol and size"},
      {"NCCL_LL128_NTHREADS", "threads per block are chosen by protocol and size"},
      {"NCCL_CGA_CLUSTER_SIZE", "thread blocks are not clustered"},
      {"NCCL_MAX_CGA_CLUSTER_SIZE", "thread blocks are not clustered"},
      {"NCCL_CROSS_NIC", kRoutes, true},
      {"NCCL_GRAPH_FILE", "Weft does not read NCCL's graphs; WEFT_SCHEDULES takes schedules"},
      {"NCCL_NVLS_ENABLE", kNvls},
      {"NCCL_NVLSTREE_ENABLE", kNvls},
      {"NCCL_NVLS_NCHANNELS", kNvls},
      {"NCCL_COLLNET_ENABLE", "reductions in the network are not used"},
      {"NCCL_COLLNET_NODE_THRESHOLD", "reductions in the network are not used"},
      {"NCCL_MNNVL_ENABLE", "NVLink between hosts is not used"},
      {"NCCL_MNNVL_UUID", "NVLink between hosts is not used"},
      {"NCCL_MNNVL_CLIQUE_ID", "NVLink between hosts is not used"},
      {"NCCL_PXN_DISABLE", kRelays},
      {"NCCL_P2P_PXN_LEVEL", kRelays},
      {"NCCL_P2P_NET_CHUNKSIZE", "WEFT_SLICE_BYTES sets how much moves at once"},
      {"NCCL_P2P_PCI_CHUNKSIZE", "WEFT_SLICE_BYTES sets how much moves at once"},
      {"NCCL_P2P_NVL_CHUNKSIZE", "WEFT_SLICE_BYTES sets how much moves at once"},
      {"NCCL_P2P_DIRECT_DISABLE", "Weft uses a peer's memory wherever a probe shows that it can"},
      {"NCCL_P2P_USE_CUDA_MEMCPY", "WEFT_COPY_ENGINES=1 moves data without thread blocks"},
      {"NCCL_LL_BUFFSIZE", "NCCL_BUFFSIZE sets the size of FIFOs; small data has fixed slots"},
      {"NCCL_LL128_BUFFSIZE", "NCCL_BUFFSIZE sets the size of FIFOs; small data has fixed slots"},
      {"NCCL_CUMEM_HOST_ENABLE", "Weft shares host memory by file descriptors, without /dev/shm"},
      {"NCCL_NET_GDR_READ", kBothWays},
      {"NCCL_NET_GDR_C2C", "NCCL_NET_GDR_LEVEL=PHB lets NICs reach GPUs through a CPU"},
      {"NCCL_GDRCOPY_*", "GDRCopy is not used"},
      {"NCCL_IB_*", kVerbs},
      {"NCCL_SHM_USE_CUDA_MEMCPY", "kernels copy through host memory"},
      {"NCCL_IGNORE_CPU_AFFINITY", "Weft binds only its proxy threads, to the cores near the NIC"},
      {"NCCL_GRAPH_REGISTER", "graphs use registered buffers and ncclMemAlloc memory"},
      {"NCCL_LAUNCH_MODE", "a group launches all its operations together"},
      {"NCCL_LAUNCH_ORDER_IMPLICIT", "calls of a communicator always keep their order"},
      {"NCCL_RUNTIME_CONNECT", "peers connect at init, networks at their first use"},
      {"NCCL_RAS_TIMEOUT_FACTOR", kRas},
      {"NCCL_CHECK_POINTERS", "Weft always checks arguments, as far as that costs nothing"},
      {"NCCL_CHECK_MODE", "Weft always checks arguments, as far as that costs nothing"},
      {"NCCL_SET_THREAD_NAME", "threads always have names, such as weft-proxy"},
      {"NCCL_MULTI_RANK_GPU_ENABLE", "several ranks may always share a GPU"},
      {"NCCL_SET_STACK_SIZE", "kernels use almost no stack"},
      {"NCCL_WORK_FIFO_*", "programs lie in device memory; there is no such FIFO"},
      {"NCCL_WORK_ARGS_BYTES", "programs lie in device memory; there is no such FIFO"},
      {"NCCL_OOB_NET_*", "the rendezvous uses TCP (NCCL_SOCKET_IFNAME)"},
      {"NCCL_UID_STAGGER_*", "all ranks join one rendezvous at once"},
      {"NCCL_SINGLE_RING_THRESHOLD", kRemoved},
      {"NCCL_LL_THRESHOLD", kRemoved},
      {"NCCL_TREE_THRESHOLD", kRemoved},
      {"NCCL_THREAD_THRESHOLDS", kPlans},
      {"NCCL_SINGLE_PROC_MEM_REG_ENABLE", "memory of one process needs no registration"},
      {"NCCL_SYM_*", "there are no such kernels; windows are used in place"},
      {"NCCL_GIN_*", "users' kernels cannot start network transfers"},
      {"NCCL_ENV_PLUGIN", "variables come only from the environment and NCCL's files"},
      {"NCCL_PROFILE_EVENT_MASK", "a profiler plugin reads it, not this library"},
      {"NCCL_NET_SHARED_BUFFERS", "each connection has its own FIFO"},
      {"NCCL_NET_SHARED_COMMS", "each communicator has its own connections"},
      {"NCCL_NET_PLUGIN_REF_COUNT", "a network plugin stays loaded"},
      {"NCCL_COMM_SPLIT_SHARE_RESOURCES", "Weft decides by itself what communicators share"},
      {"NCCL_COMM_SHRINK_SHARE_RESOURCES", "Weft decides by itself what communicators share"},
      {"NCCL_WARN_ENABLE_DEBUG_INFO", "NCCL_DEBUG=INFO shows what came before a warning"},
      {"NCCL_CHECKS_DISABLE", "Weft always checks arguments, as far as that costs nothing"},
      {"NCCL_GRAPH_STREAM_ORDERING", "calls in graphs keep their order"},
      {"NCCL_LAUNCH_RACE_FATAL", "Weft does not look for launches that race"},
      {"NCCL_MEM_SYNC_DOMAIN", "kernels use the default domain"},
      {"NCCL_PROXY_CPUSET", "Weft binds its proxy threads to the cores near the NIC"},
      {"NCCL_PAT_ENABLE", kPlans},
      {"NCCL_NVB_DISABLE", kPlans},
      {"NCCL_NETDEVS_POLICY", kPlans},
      {"NCCL_NET_MERGE_*", "NICs of a rank are joined where the plugin can"},
      {"NCCL_NET_DISABLE_INTRA", "ranks of a host use the network only with NCCL_SHM_DISABLE=1"},
      {"NCCL_PXN_C2C", kRelays},
      {"NCCL_P2P_LL_THRESHOLD", "messages of up to 32 KiB go in packets"},
      {"NCCL_P2P_READ_ENABLE", "receivers read large messages where they lie"},
      {"NCCL_P2P_MAX_PEERS", "all peers are connected at init"},
      {"NCCL_ALLOC_P2P_NET_LL_BUFFERS", "messages between hosts need no such buffers"},
      {"NCCL_IGNORE_COLLNET_MISMATCH", "reductions in the network are not used"},
      {"NCCL_IGNORE_NET_MISMATCH", "all ranks agree on a network at init"},
      {"NCCL_IGNORE_DISABLED_P2P", "Weft uses a peer's memory wherever a probe shows that it can"},
      {"NCCL_IPC_USE_ABSTRACT_SOCKET", "Weft uses abstract sockets only"},
      {"NCCL_LEGACY_CUDA_REGISTER", "memory of cudaMalloc can be registered"},
      {"NCCL_NUM_RMA_CTX", "one-sided calls need no contexts"},
      {"NCCL_RMA_*", "one-sided calls have no plugins"},
      {"NCCL_LSA_TEAM_SIZE", "an LSA team has the ranks of a host"},
      {"NCCL_WIN_STRIDE", "windows are as far apart as their size demands"},
      {"NCCL_SOCKET_MAGIC", "both sides of a connection prove that they know the unique id"},
      {"NCCL_SOCKET_POLL_TIMEOUT_MSEC", "WEFT_INIT_TIMEOUT limits all of init"},
      {"NCCL_SOCKET_RETRY_*", "WEFT_INIT_TIMEOUT limits all of init"},
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
