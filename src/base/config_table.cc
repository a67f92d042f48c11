// Every environment variable that Weft reads. Defaults stand at the members, in config.h.
#include "src/base/config_table.h"

namespace weft {
namespace {

constexpr const char* kWires[] = {"plain", "check", "encrypt"};
constexpr const char* kAccumulate[] = {"type", "float"};
constexpr const char* kFamilies[] = {"AF_INET", "AF_INET6"};
// The kernel's limits for dead peers are an int of milliseconds, and 0 would switch them off.
constexpr double kLeastPeerTimeout = 0.01, kMostPeerTimeout = 1e6;

constexpr ConfigVariable kConfigVariables[] = {
    {"NCCL_CONF_FILE", &Config::conf_file,
     "File of variables, read instead of ~/.nccl.conf. /etc/nccl.conf is always read."},
    {"NCCL_DEBUG", &Config::debug, "Log level: VERSION, WARN, INFO or TRACE."},
    {"NCCL_DEBUG_SUBSYS", &Config::debug_subsys,
     "Subsystems whose INFO lines are logged. ^ inverts."},
    {"NCCL_DEBUG_FILE", &Config::debug_file,
     "File for the log. %h is the host, %p the process id."},
    {"NCCL_DEBUG_TIMESTAMP_LEVELS", &Config::debug_timestamp_levels,
     "Levels whose lines begin with the time, as WARN,INFO or ALL. ^ inverts."},
    {"NCCL_DEBUG_TIMESTAMP_FORMAT", &Config::debug_timestamp_format,
     "Form of that time, as for strftime. %3f: milliseconds. _: a space."},
    {"NCCL_SOCKET_IFNAME", &Config::socket_ifname,
     "Network interfaces to use, by prefix. ^ excludes, = takes exact names."},
    {"NCCL_SOCKET_FAMILY",
     &Config::socket_family,
     "Address family: AF_INET or AF_INET6.",
     {.one_of = kFamilies}},
    {"NCCL_COMM_ID", &Config::comm_id, "host:port of the rendezvous."},
    {"NCCL_HOSTID", &Config::host_id, "Replaces the identity of this host."},
    {"NCCL_SHM_DISABLE", &Config::shm_disable,
     "1: processes of one host use sockets instead of shared memory."},
    {"NCCL_NET_PLUGIN", &Config::net_plugin,
     "Network plugins to try, ',' between them. none: only Weft's own. Unset: libnccl-net.so."},
    {"NCCL_RAS_ENABLE", &Config::ras_enable,
     "1: a port answers ncclras, with what 'weft status all' shows of this host."},
    {"NCCL_RAS_ADDR", &Config::ras_addr, "host:port of that port."},
    {"NCCL_NVTX_DISABLE", &Config::nvtx_disable, "GPU only. 1: no NVTX ranges."},
    {"NCCL_PROFILER_PLUGIN", &Config::profiler_plugin,
     "Profiler plugin. none: no plugin. Unset: libnccl-profiler.so."},
    {"NCCL_NET", &Config::net, "Name of the network to use."},
    {"NCCL_IB_DISABLE", &Config::ib_disable, "1: the verbs plugin is not used."},
    {"NCCL_IB_HCA", &Config::ib_hca,
     "RDMA devices to use, by prefix. ^ excludes, = takes exact names, device:port names a port."},
    {"NCCL_IB_GID_INDEX", &Config::ib_gid_index, "Index of the RoCE address. -1: Weft chooses."},
    {"NCCL_IB_ADDR_FAMILY",
     &Config::ib_addr_family,
     "Family of the RoCE address: AF_INET or AF_INET6.",
     {.one_of = kFamilies}},
    {"NCCL_IB_ADDR_RANGE", &Config::ib_addr_range, "Subnet of the RoCE address, as 10.0.0.0/8."},
    {"NCCL_IB_ROCE_VERSION_NUM", &Config::ib_roce_version, "RoCE version: 1 or 2."},
    {"NCCL_IB_TIMEOUT", &Config::ib_timeout, "A packet is sent again after 4.096 us * 2^n."},
    {"NCCL_IB_RETRY_CNT", &Config::ib_retry_cnt, "How often a packet is sent again."},
    {"NCCL_IB_PKEY", &Config::ib_pkey, "Index of the partition key."},
    {"NCCL_IB_SL", &Config::ib_sl, "InfiniBand service level."},
    {"NCCL_IB_TC", &Config::ib_tc, "Traffic class."},
    {"NCCL_IB_QPS_PER_CONNECTION", &Config::ib_qps_per_connection,
     "Queue pairs of a connection on each device."},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", &Config::ib_split_data_on_qps,
     "1: every large message goes over all queue pairs."},
    {"NCCL_IB_PCI_RELAXED_ORDERING", &Config::ib_relaxed_ordering,
     "PCI relaxed ordering. 0: off. 1: on. 2: where possible."},
    {"NCCL_IB_ADAPTIVE_ROUTING", &Config::ib_adaptive_routing,
     "Packets may overtake each other. 0: no. 1: yes. -2: on InfiniBand."},
    {"NCCL_IB_AR_THRESHOLD", &Config::ib_ar_threshold,
     "Where they may: larger writes are announced by a write of their own."},
    {"WEFT_IB_RECOVERY", &Config::ib_recovery_s,
     "Seconds until an RDMA link that does not come back fails."},
    {"NCCL_SOCKET_NTHREADS", &Config::socket_nthreads,
     "Threads of a connection. 0: Weft chooses by the link's rate."},
    {"NCCL_NSOCKS_PERTHREAD", &Config::nsocks_per_thread,
     "Sockets of each of these threads. 0: Weft chooses by the link's rate."},
    {"NCCL_COMM_BLOCKING", &Config::comm_blocking, "0 or 1 overrides blocking in ncclConfig_t."},
    {"NCCL_ALGO", &Config::algo, "Algorithms to choose from, as ring,tree or ^tree."},
    {"NCCL_PROTO", &Config::proto, "Protocols to choose from, as LL,LL128,Simple."},
    {"NCCL_MAX_NCHANNELS", &Config::max_channels,
     "Most channels of a plan. GPU: also most thread blocks. 0: no limit."},
    {"NCCL_TUNER_PLUGIN", &Config::tuner_plugin,
     "Tuner plugin. none: no plugin. Unset: libnccl-tuner.so."},
    {"MSCCL_XML_FILES", &Config::msccl_xml_files, "Schedule files to use, ':' between them."},
    {"MSCCL_ALGO_DIR", &Config::msccl_algo_dir, "Folder of schedule files to use."},
    {"WEFT_INIT_TIMEOUT", &Config::init_timeout_s,
     "Seconds until init fails when a rank is missing."},
    {"WEFT_TIMEOUT", &Config::timeout_s, "Seconds a collective may wait for a peer. 0: no limit."},
    {"WEFT_PEER_TIMEOUT",
     &Config::peer_timeout_s,
     "Seconds after which a host that does not answer counts as dead.",
     {.least_s = kLeastPeerTimeout, .most_s = kMostPeerTimeout}},
    {"WEFT_STALL_WARNING", &Config::stall_warning_s,
     "Seconds until a rank that waits says so, and for which peer: in the log, or on stderr where "
     "NCCL_DEBUG hides warnings. 0: never."},
    {"WEFT_TRACE", &Config::trace,
     "File for a timeline in Perfetto's format. %h is the host, %p the process id."},
    {"WEFT_SECRET",
     &Config::secret,
     "Shared secret to use with NCCL_COMM_ID and WEFT_HELPERS.",
     {.secret = true}},
    {"WEFT_PLAN", &Config::plan, "Forces generators, as all_reduce=ring,broadcast=tree."},
    {"WEFT_COMPRESS", &Config::compress,
     "Compresses what goes between hosts: off, auto, or codecs as "
     "all_gather=int8,reduce_scatter=int4:block=128:feedback. 'imported' allows imported schedules "
     "their codecs. NAME/... is for communicators of that name, ';' between parts."},
    {"WEFT_ACCUMULATE",
     &Config::accumulate,
     "float: sums of float16 and bfloat16 are rounded once, also where a plan passes "
     "partial sums on: these travel as float. type: such sums are rounded at every hop.",
     {.one_of = kAccumulate}},
    {"WEFT_PRIORITY", &Config::priority,
     "Class of communicators: high, normal or low. NAME/high is for communicators of "
     "that name, ';' between parts."},
    {"WEFT_COMPRESS_LOSSES", &Config::compress_losses_bytes,
     "Most memory of a communicator for what feedback keeps, in bytes."},
    {"WEFT_HELPERS", &Config::helpers,
     "Hosts that help (weft serve), as host:port,host:port. Needs WEFT_SECRET."},
    {"WEFT_HELPERS_FROM", &Config::helpers_from,
     "Smallest all_reduce in bytes that uses the helpers. 0: ranks measure at init where that is "
     "faster."},
    {"WEFT_SCHEDULES", &Config::schedules, "Schedule files and folders to use, ':' between them."},
    {"NCCL_BUFFSIZE", &Config::ring_bytes,
     "NCCL's name of WEFT_RING_BYTES. WEFT_RING_BYTES wins if both are set."},
    {"WEFT_RING_BYTES", &Config::ring_bytes,
     "Size of the FIFO of each peer and channel. It holds at least four slices."},
    {"WEFT_SLICE_BYTES", &Config::slice_bytes, "Most bytes that one step moves at once."},
    {"WEFT_ZERO_COPY_BYTES", &Config::zero_copy_bytes,
     "From this size on ranks pass addresses instead of data, where that is faster."},
    {"WEFT_LEND_PAGES", &Config::lend_pages,
     "0: sockets to peers on this machine copy data instead of lending pages."},
    {"WEFT_WIRE",
     &Config::wire,
     "Protection of data between hosts over sockets. plain: none. check: a checksum finds damage. "
     "encrypt: nobody reads or changes it. Ranks must agree.",
     {.one_of = kWires}},
    {"WEFT_PROXY_THREADS", &Config::proxy_threads,
     "Threads that serve the network. 0: one; with GPUs up to four, by the rank's share of its "
     "cores."},
    {"WEFT_HOST_MODE", &Config::host_mode, "1: ignore GPUs."},
    {"WEFT_BLOCK_SHARE", &Config::block_share,
     "GPU only. Percent of a GPU's free thread blocks that a new communicator reserves. Ranks must "
     "agree. 0: none, its calls take turns with those of others. -1: 50, or all but one per rank "
     "where its ranks share a GPU."},
    {"WEFT_CTA_BYTES",
     &Config::cta_bytes,
     "GPU only. Data of a thread block before another one joins. At least 1024.",
     {.at_least = 1024}},
    {"WEFT_SCRATCH_BYTES", &Config::scratch_bytes,
     "GPU only. Scratch memory that all ranks can reach, for private buffers. Between processes "
     "sends have half as much besides. 0: 20 to 38 MiB between processes of one host, else 32 "
     "MiB."},
    {"WEFT_LANE_FIFO_BYTES", &Config::lane_fifo_bytes,
     "GPU only. Most bytes of a FIFO between two GPUs, per port and instance of a lane. FIFOs are "
     "larger for schedules that need it. 0: 1 MiB, or two round trips of the network between "
     "hosts, "
     "up to 8 MiB."},
    {"WEFT_LANE_SLOTS", &Config::lane_slots,
     "GPU only. Messages that such a FIFO holds, at least. 0: 4, or more of 256 KiB each."},
    {"WEFT_EAGER_BYTES", &Config::eager_bytes,
     "GPU only. Memory of a rank, twice, for messages between hosts that do not wait until their "
     "receiver has entered the call. Their packets have as much of their own, at most 1 MiB. Calls "
     "whose messages fit use it. 0: none do, and where ranks are on several hosts no messages are "
     "packets."},
    {"WEFT_STRAIGHT", &Config::straight,
     "GPU only. 0: all messages of schedules go through FIFOs, none straight into peers' buffers."},
    {"WEFT_NET_LANES", &Config::net_lanes,
     "GPU only. Whether GPUs of several hosts run lanes, with peer memory inside a host. 0: never. "
     "1: where a host has several ranks, or NICs reach the memory of GPUs, or schedules are "
     "imported or made for WEFT_TOPO, and for compressed calls. 2: always."},
    {"WEFT_SHARE_BUFFERS", &Config::share_buffers,
     "GPU only. 0: between processes only registered buffers and memory of ncclMemAlloc are used "
     "where they lie."},
    {"WEFT_SHARE_BYTES", &Config::share_bytes,
     "GPU only. Most memory that nobody registered and that a rank of a communicator shares with "
     "its peers. What calls have not used for longest goes first."},
    {"WEFT_SYSTEM_SCOPE", &Config::system_scope,
     "For tests. 1: kernels order memory as for several GPUs, on one GPU too."},
    {"WEFT_PACKET_BYTES", &Config::packet_bytes,
     "GPU only. A rank that sends no more than this uses the low-latency protocol (packets). The "
     "limit is about half of this where threads share a GPU, and twice this for a root that "
     "receives."},
    {"NCCL_P2P_DISABLE", &Config::p2p_disable, "1: data between GPUs goes through host memory."},
    {"NCCL_P2P_LEVEL", &Config::p2p_level,
     "LOC or 0: as NCCL_P2P_DISABLE=1. Other levels have no effect: a probe decides."},
    {"NCCL_LOCAL_REGISTER", &Config::local_register,
     "0: ncclCommRegister succeeds and registers nothing."},
    {"NCCL_WIN_ENABLE", &Config::win_enable,
     "0: ncclCommWindowRegister succeeds and gives no window."},
    {"NCCL_CUMEM_ENABLE", &Config::cumem_enable,
     "GPU only. 0: ncclMemAlloc uses cudaMalloc, and kernels cannot reach windows of such memory."},
    {"NCCL_NET_GDR_LEVEL", &Config::net_gdr_level,
     "GPU only. How far a NIC may be from a GPU whose memory it reads and writes: LOC (never), "
     "PIX, "
     "PXB, PHB, SYS. Unset: PXB."},
    {"NCCL_NET_FORCE_FLUSH", &Config::net_force_flush,
     "GPU only. 1: data that a NIC writes into a GPU's memory is always flushed."},
    {"NCCL_DMABUF_ENABLE", &Config::dmabuf_enable,
     "GPU only. 0: NICs get addresses of GPU memory and no DMA-BUF descriptors."},
    {"WEFT_LOSE_FLUSHES", &Config::lose_flushes,
     "For tests. 1: data that a NIC writes into a GPU's memory is never flushed."},
    {"WEFT_LOSE_PROBES", &Config::lose_probes,
     "For tests. 1: Weft acts as if peer-to-peer writes between GPUs were lost."},
    {"NCCL_GRAPH_MIXING_SUPPORT", &Config::graph_mixing,
     "GPU only. 0: graphs are not ordered with work on other streams."},
    {"WEFT_COUNT_GRAPHS", &Config::count_graphs,
     "GPU only. 1: a communicator can be suspended once all graphs with its calls are destroyed. "
     "Their launches take longer."},
    {"NCCL_MAX_CTAS", &Config::max_ctas,
     "GPU only. Most thread blocks of an operation. 0: as many as fit."},
    {"NCCL_CTA_POLICY", &Config::cta_policy,
     "GPU only. 2 (ZERO): as WEFT_COPY_ENGINES=1. 0 and 1 have no effect."},
    {"WEFT_COPY_ENGINES", &Config::copy_engines,
     "GPU only. 1: copy engines move data instead of thread blocks. It wins over NCCL_CTA_POLICY."},
    {"WEFT_WORKERS", &Config::workers,
     "Worker threads in host mode. -1: one less than there are cores."},
    {"NCCL_TOPO_FILE", &Config::topo_file, "File that describes this machine."},
    {"NCCL_TOPO_DUMP_FILE", &Config::topo_dump_file,
     "File to write this machine's topology to, in NCCL's format."},
    {"NCCL_TOPO_DUMP_FILE_RANK", &Config::topo_dump_rank, "The rank that writes it."},
    {"NCCL_GRAPH_DUMP_FILE", &Config::graph_dump_file,
     "File to write the plans to at init: rings as NCCL does, others as links."},
    {"NCCL_GRAPH_DUMP_FILE_RANK", &Config::graph_dump_rank, "The rank that writes it."},
    {"WEFT_CATALOGUE", &Config::catalogue, "Folder of machines that go before the built-in ones."},
    {"WEFT_TOPO", &Config::topo, "Machine to plan for: a name of the catalogue or a file."},
    {"WEFT_CACHE", &Config::cache,
     "Folder of plans and measured rates. none: no folder. Unset: $XDG_CACHE_HOME/weft, else "
     "~/.cache/weft."},
    {"WEFT_SYNTHESIS", &Config::synthesis,
     "Library that synthesizes schedules at init. none: no synthesis. Unset: Weft's own."},
    {"WEFT_SYNTHESIS_SECONDS",
     &Config::synthesis_seconds,
     "Seconds that synthesis may take. -1: as long as init allows. 1 or more: complete searches, "
     "also for more than 32 ranks.",
     {.least_s = -1}},
    {"WEFT_BACKGROUND_SYNTHESIS", &Config::background_seconds,
     "Seconds that a thread of rank 0 goes on for the cache where init left schedules. 0: none."},
    {"WEFT_SOLVER_PLUGIN", &Config::solver_plugin,
     "Solver plugin that synthesis uses. none: no solver. Unset: libweft-solver-cbc.so."},
};

}  // namespace

std::span<const ConfigVariable> config_variables() { return kConfigVariables; }

}  // namespace weft
