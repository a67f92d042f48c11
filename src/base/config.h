// Every environment variable Weft reads, typed, with its default and meaning, in this one place.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace weft {

struct Config {
  // NCCL's own, with NCCL's meaning.
  std::string conf_file;      // NCCL_CONF_FILE: see variables.h
  std::string debug;          // NCCL_DEBUG: VERSION, WARN, INFO, TRACE
  std::string debug_subsys;   // NCCL_DEBUG_SUBSYS: list of subsystems, ^ inverts
  std::string debug_file;     // NCCL_DEBUG_FILE: path with %h (host) and %p (pid)
  std::string socket_ifname;  // NCCL_SOCKET_IFNAME: prefixes, ^exclude, =exact
  std::string socket_family;  // NCCL_SOCKET_FAMILY: AF_INET or AF_INET6
  std::string comm_id;        // NCCL_COMM_ID: host:port of the rendezvous
  bool nvtx_disable = false;  // NCCL_NVTX_DISABLE: 1 leaves NVTX ranges out
  // NCCL_PROFILER_PLUGIN: a profiler plugin; "none"; unset: libnccl-profiler.so
  std::optional<std::string> profiler_plugin;
  std::string host_id;       // NCCL_HOSTID: replaces the host's identity
  bool shm_disable = false;  // NCCL_SHM_DISABLE: processes of one host talk over TCP
  // NCCL_NET_PLUGIN: network plugins to try, ',' between them; "none"; unset: libnccl-net.so
  std::optional<std::string> net_plugin;
  std::string net;          // NCCL_NET: name of the network to use
  bool ib_disable = false;  // NCCL_IB_DISABLE: 1 leaves the verbs plugin out
  std::string ib_hca;       // NCCL_IB_HCA: RDMA devices, "=" exact, "^" exclude, device:port
  int ib_gid_index = -1;    // NCCL_IB_GID_INDEX: RoCE address by its index; -1: chosen
  std::string ib_addr_family = "AF_INET";  // NCCL_IB_ADDR_FAMILY: of the RoCE address
  std::string ib_addr_range;               // NCCL_IB_ADDR_RANGE: subnet of the RoCE address
  int ib_roce_version = 2;                 // NCCL_IB_ROCE_VERSION_NUM
  int ib_timeout = 20;            // NCCL_IB_TIMEOUT: 4.096 us * 2^n until a packet is resent
  int ib_retry_cnt = 7;           // NCCL_IB_RETRY_CNT: how often it is
  int ib_pkey = 0;                // NCCL_IB_PKEY: index of the partition key
  int ib_sl = 0;                  // NCCL_IB_SL: service level
  int ib_tc = 0;                  // NCCL_IB_TC: traffic class
  int ib_qps_per_connection = 1;  // NCCL_IB_QPS_PER_CONNECTION: queue pairs per rail
  bool ib_split_data_on_qps =
      false;                    // NCCL_IB_SPLIT_DATA_ON_QPS: 1: every message over all of them
  int ib_relaxed_ordering = 2;  // NCCL_IB_PCI_RELAXED_ORDERING: 0 off, 1 on, 2 where possible
  double ib_recovery_s =
      20;                   // WEFT_IB_RECOVERY: seconds until a link that does not come back fails
  int socket_nthreads = 0;  // NCCL_SOCKET_NTHREADS: threads of a connection; 0: chosen
  int nsocks_per_thread = 0;  // NCCL_NSOCKS_PERTHREAD: sockets of each of them; 0: chosen
  int comm_blocking = -1;     // NCCL_COMM_BLOCKING: overrides config.blocking when 0 or 1

  std::string algo;      // NCCL_ALGO: algorithms to choose from: ring,tree or ^tree
  std::string proto;     // NCCL_PROTO: protocols to choose from: LL,LL128,Simple
  int max_channels = 0;  // NCCL_MAX_NCHANNELS: most channels of a plan; 0: as many as fit
  // NCCL_TUNER_PLUGIN: the tuner plugin to use; "none"; unset: libnccl-tuner.so
  std::optional<std::string> tuner_plugin;

  // MSCCL's.
  std::string msccl_xml_files;  // MSCCL_XML_FILES: schedule files, ':' between them
  std::string msccl_algo_dir;   // MSCCL_ALGO_DIR: a folder of schedule files

  // Ours.
  double init_timeout_s = 300;  // WEFT_INIT_TIMEOUT: seconds until a missing rank fails the init
  double timeout_s = 0;  // WEFT_TIMEOUT: seconds a collective may wait for a peer; 0: for ever
  double stall_warning_s = 30;     // WEFT_STALL_WARNING: seconds until a waiting rank says for whom
  std::string trace;               // WEFT_TRACE: where to write a timeline, see trace.h
  std::string secret;              // WEFT_SECRET: shared secret when NCCL_COMM_ID is used
  std::string plan;                // WEFT_PLAN: all_reduce=ring,broadcast=tree forces generators
  std::string schedules;           // WEFT_SCHEDULES: schedule files and folders, ':' between them
  size_t ring_bytes = 512u << 10;  // WEFT_RING_BYTES, NCCL_BUFFSIZE: FIFO per peer and channel
  size_t slice_bytes = 64u << 10;  // WEFT_SLICE_BYTES: most bytes one step moves at once
  // The same where every rank is on a host of its own, unless the user sets the above.
  // Nine segments of loopback TCP, so that 512 KiB are one slice, and four of them in a ring.
  size_t net_ring_bytes = 2560u << 10, net_slice_bytes = 576u << 10;
  // What is summed lies in a ring before: with more than two ranks, longer slices leave the cache.
  size_t net_sum_slice_bytes = 512u << 10;
  // And between GPUs of few hosts, which have many rings: short slices follow each other.
  size_t gpu_net_ring_bytes = 2u << 20, gpu_net_slice_bytes = 256u << 10;
  size_t zero_copy_bytes =
      8192;  // WEFT_ZERO_COPY_BYTES: from this size on, hand over addresses instead of data
  bool lend_pages = true;        // WEFT_LEND_PAGES: 0 copies what goes to peers on this machine
  int proxy_threads = 0;         // WEFT_PROXY_THREADS: threads that serve the network; 0: chosen
  bool host_mode = false;        // WEFT_HOST_MODE: 1 ignores GPUs
  size_t cta_bytes = 16u << 10;  // WEFT_CTA_BYTES: data per thread block before another one joins
  size_t scratch_bytes =
      0;  // WEFT_SCRATCH_BYTES: GPU memory that all ranks can reach, for private buffers; 0: chosen
  // NCCL_GRAPH_MIXING_SUPPORT: graphs are ordered with what runs on other streams meanwhile
  bool graph_mixing = true;
  size_t packet_bytes =
      1u << 20;  // WEFT_PACKET_BYTES: GPU: flags beside the data while a rank sends no more
  bool p2p_disable = false;    // NCCL_P2P_DISABLE: GPUs do not use each other's memory
  std::string p2p_level;       // NCCL_P2P_LEVEL: LOC is the same as NCCL_P2P_DISABLE
  bool local_register = true;  // NCCL_LOCAL_REGISTER: 0 makes ncclCommRegister do nothing
  bool win_enable = true;      // NCCL_WIN_ENABLE: 0 makes ncclCommWindowRegister do nothing
  bool lose_probes = false;    // WEFT_LOSE_PROBES: for tests: as if peer-to-peer writes got lost
  int cta_policy = 0;          // NCCL_CTA_POLICY: 2 is the same as WEFT_COPY_ENGINES
  int max_ctas = 0;            // NCCL_MAX_CTAS: most thread blocks per operation; 0: as many as fit
  bool copy_engines = false;   // WEFT_COPY_ENGINES: GPU: 1 moves data without thread blocks
  int workers = -1;            // WEFT_WORKERS: helper threads in host mode; -1: cores - 1

  std::string topo_file;       // NCCL_TOPO_FILE: a file that describes this machine
  std::string topo_dump_file;  // NCCL_TOPO_DUMP_FILE: where to write this machine, in NCCL's format
  int topo_dump_rank = 0;      // NCCL_TOPO_DUMP_FILE_RANK: the rank that writes it
  std::string catalogue;  // WEFT_CATALOGUE: folder of machines that go before the built-in ones

  std::string topo;   // WEFT_TOPO: the machine to plan for, a catalogue name or a file
  std::string cache;  // WEFT_CACHE: folder of plans and rates; none: no such folder. Without it
                      // XDG_CACHE_HOME/weft, or HOME/.cache/weft

  // WEFT_SYNTHESIS: the library that synthesizes schedules at init; none: no such schedules
  std::string synthesis;
  // WEFT_SYNTHESIS_SECONDS: for that; -1: what init has time for; a second or more: whole searches,
  // beyond 32 ranks too
  double synthesis_seconds = -1;
  std::string solver_plugin;  // WEFT_SOLVER_PLUGIN: the solver that synthesis uses; none: no solver

  std::vector<std::string> complaints;  // one for each value that is no number, for the log

  // Reads the environment (and, for names it does not hold, NCCL's configuration files).
  static Config from_environment();
};

// One row of the table `weft env` prints.
struct ConfigEntry {
  std::string name, value, meaning;
};
std::vector<ConfigEntry> describe(const Config& config);

}  // namespace weft
