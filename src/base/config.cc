// Reads the variables listed in config.h from the environment.
#include "src/base/config.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>

namespace weft {
namespace {

std::string text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void read(const char* name, double& value) {
  const std::string word = text(name);
  if (word.empty()) return;
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  if (end != word.c_str() && *end == '\0') value = number;
}

template <typename Integer>
void read_integer(const char* name, Integer& value) {
  const std::string word = text(name);
  if (word.empty()) return;
  char* end = nullptr;
  long long number = std::strtoll(word.c_str(), &end, 0);
  if (end == word.c_str()) return;
  switch (std::toupper(static_cast<unsigned char>(*end))) {
    case 'K':
      number <<= 10;
      break;
    case 'M':
      number <<= 20;
      break;
    case 'G':
      number <<= 30;
      break;
    default:
      break;
  }
  value = static_cast<Integer>(number);
}

}  // namespace

Config Config::from_environment() {
  Config config;
  config.debug = text("NCCL_DEBUG");
  config.debug_subsys = text("NCCL_DEBUG_SUBSYS");
  config.debug_file = text("NCCL_DEBUG_FILE");
  config.socket_ifname = text("NCCL_SOCKET_IFNAME");
  config.socket_family = text("NCCL_SOCKET_FAMILY");
  config.comm_id = text("NCCL_COMM_ID");
  config.host_id = text("NCCL_HOSTID");
  int shm_disable = 0;
  read_integer("NCCL_SHM_DISABLE", shm_disable);
  config.shm_disable = shm_disable != 0;
  if (std::getenv("NCCL_NET_PLUGIN") != nullptr) config.net_plugin = text("NCCL_NET_PLUGIN");
  config.net = text("NCCL_NET");
  int ib_disable = 0;
  read_integer("NCCL_IB_DISABLE", ib_disable);
  config.ib_disable = ib_disable != 0;
  config.ib_hca = text("NCCL_IB_HCA");
  read_integer("NCCL_IB_GID_INDEX", config.ib_gid_index);
  if (!text("NCCL_IB_ADDR_FAMILY").empty()) config.ib_addr_family = text("NCCL_IB_ADDR_FAMILY");
  config.ib_addr_range = text("NCCL_IB_ADDR_RANGE");
  read_integer("NCCL_IB_ROCE_VERSION_NUM", config.ib_roce_version);
  read_integer("NCCL_IB_TIMEOUT", config.ib_timeout);
  read_integer("NCCL_IB_RETRY_CNT", config.ib_retry_cnt);
  read_integer("NCCL_IB_PKEY", config.ib_pkey);
  read_integer("NCCL_IB_SL", config.ib_sl);
  read_integer("NCCL_IB_TC", config.ib_tc);
  read_integer("NCCL_IB_QPS_PER_CONNECTION", config.ib_qps_per_connection);
  int ib_split = 0;
  read_integer("NCCL_IB_SPLIT_DATA_ON_QPS", ib_split);
  config.ib_split_data_on_qps = ib_split != 0;
  read_integer("NCCL_IB_PCI_RELAXED_ORDERING", config.ib_relaxed_ordering);
  read("WEFT_IB_RECOVERY", config.ib_recovery_s);
  read_integer("NCCL_SOCKET_NTHREADS", config.socket_nthreads);
  read_integer("NCCL_NSOCKS_PERTHREAD", config.nsocks_per_thread);
  read_integer("NCCL_COMM_BLOCKING", config.comm_blocking);
  config.msccl_xml_files = text("MSCCL_XML_FILES");
  config.msccl_algo_dir = text("MSCCL_ALGO_DIR");
  read("WEFT_INIT_TIMEOUT", config.init_timeout_s);
  read("WEFT_TIMEOUT", config.timeout_s);
  read("WEFT_STALL_WARNING", config.stall_warning_s);
  config.secret = text("WEFT_SECRET");
  config.plan = text("WEFT_PLAN");
  config.schedules = text("WEFT_SCHEDULES");
  read_integer("WEFT_RING_BYTES", config.ring_bytes);
  read_integer("WEFT_SLICE_BYTES", config.slice_bytes);
  read_integer("WEFT_ZERO_COPY_BYTES", config.zero_copy_bytes);
  read_integer("WEFT_WORKERS", config.workers);
  int graph_mixing = 1;
  read_integer("NCCL_GRAPH_MIXING_SUPPORT", graph_mixing);
  config.graph_mixing = graph_mixing != 0;
  read_integer("WEFT_PROXY_THREADS", config.proxy_threads);
  int p2p_disable = 0, lose_probes = 0;
  read_integer("NCCL_P2P_DISABLE", p2p_disable);
  config.p2p_disable = p2p_disable != 0;
  read_integer("WEFT_LOSE_PROBES", lose_probes);
  config.lose_probes = lose_probes != 0;
  int host_mode = 0;
  read_integer("WEFT_HOST_MODE", host_mode);
  config.host_mode = host_mode != 0;
  read_integer("WEFT_CTA_BYTES", config.cta_bytes);
  if (config.cta_bytes < 1024) config.cta_bytes = 1024;
  read_integer("WEFT_PACKED_BYTES", config.packed_bytes);
  read_integer("WEFT_STAGE_BYTES", config.stage_bytes);
  read_integer("NCCL_MAX_CTAS", config.max_ctas);
  int copy_engines = 0;
  read_integer("WEFT_COPY_ENGINES", copy_engines);
  config.copy_engines = copy_engines != 0;
  config.topo_file = text("NCCL_TOPO_FILE");
  config.topo_dump_file = text("NCCL_TOPO_DUMP_FILE");
  read_integer("NCCL_TOPO_DUMP_FILE_RANK", config.topo_dump_rank);
  config.catalogue = text("WEFT_CATALOGUE");
  config.solver_plugin = text("WEFT_SOLVER_PLUGIN");
  // A ring holds at least four of the largest messages (see lower.cc), each with its 64-byte
  // header.
  if (config.slice_bytes < 64) config.slice_bytes = 64;
  config.slice_bytes = config.slice_bytes / 64 * 64;
  const size_t least = 4 * (config.slice_bytes + 64);
  config.ring_bytes = (config.ring_bytes < least ? least : config.ring_bytes) / 64 * 64;
  if (!text("WEFT_SLICE_BYTES").empty()) config.net_slice_bytes = config.slice_bytes;
  if (!text("WEFT_RING_BYTES").empty()) config.net_ring_bytes = config.ring_bytes;
  return config;
}

std::vector<ConfigEntry> describe(const Config& c) {
  return {
      {"NCCL_DEBUG", c.debug, "VERSION, WARN, INFO or TRACE"},
      {"NCCL_DEBUG_SUBSYS", c.debug_subsys, "subsystems of INFO lines; ^ inverts"},
      {"NCCL_DEBUG_FILE", c.debug_file, "where lines go; %h host, %p pid"},
      {"NCCL_SOCKET_IFNAME", c.socket_ifname, "interfaces to use: prefixes, ^exclude, =exact"},
      {"NCCL_SOCKET_FAMILY", c.socket_family, "AF_INET or AF_INET6"},
      {"NCCL_COMM_ID", c.comm_id, "host:port of the rendezvous"},
      {"NCCL_HOSTID", c.host_id, "replaces this host's identity"},
      {"NCCL_SHM_DISABLE", fmt::format("{:d}", c.shm_disable),
       "1: no shared memory between processes"},
      {"NCCL_NET_PLUGIN", c.net_plugin.value_or(""), "network plugins to try; none: only ours"},
      {"NCCL_NET", c.net, "name of the network to use"},
      {"NCCL_IB_DISABLE", fmt::format("{:d}", c.ib_disable), "1: no verbs plugin"},
      {"NCCL_IB_HCA", c.ib_hca, "RDMA devices to use: prefixes, =exact, ^exclude, device:port"},
      {"NCCL_IB_GID_INDEX", fmt::format("{}", c.ib_gid_index), "RoCE address; -1: chosen"},
      {"NCCL_IB_ADDR_FAMILY", c.ib_addr_family, "of the RoCE address: AF_INET or AF_INET6"},
      {"NCCL_IB_ADDR_RANGE", c.ib_addr_range, "subnet of the RoCE address, as 10.0.0.0/8"},
      {"NCCL_IB_ROCE_VERSION_NUM", fmt::format("{}", c.ib_roce_version), "1 or 2"},
      {"NCCL_IB_TIMEOUT", fmt::format("{}", c.ib_timeout),
       "4.096 us * 2^n until a packet is resent"},
      {"NCCL_IB_RETRY_CNT", fmt::format("{}", c.ib_retry_cnt), "how often a packet is resent"},
      {"NCCL_IB_PKEY", fmt::format("{}", c.ib_pkey), "index of the partition key"},
      {"NCCL_IB_SL", fmt::format("{}", c.ib_sl), "InfiniBand service level"},
      {"NCCL_IB_TC", fmt::format("{}", c.ib_tc), "traffic class"},
      {"NCCL_IB_QPS_PER_CONNECTION", fmt::format("{}", c.ib_qps_per_connection),
       "queue pairs of a connection per rail"},
      {"NCCL_IB_SPLIT_DATA_ON_QPS", fmt::format("{:d}", c.ib_split_data_on_qps),
       "1: every large message goes over all of them"},
      {"NCCL_IB_PCI_RELAXED_ORDERING", fmt::format("{}", c.ib_relaxed_ordering),
       "0: off, 1: on, 2: where possible"},
      {"WEFT_IB_RECOVERY", fmt::format("{}", c.ib_recovery_s),
       "seconds until an RDMA link that does not come back fails"},
      {"NCCL_SOCKET_NTHREADS", fmt::format("{}", c.socket_nthreads),
       "threads per connection; 0: chosen by rate"},
      {"NCCL_NSOCKS_PERTHREAD", fmt::format("{}", c.nsocks_per_thread),
       "sockets per thread; 0: chosen by rate"},
      {"NCCL_COMM_BLOCKING", fmt::format("{}", c.comm_blocking),
       "0 or 1 overrides config.blocking"},
      {"MSCCL_XML_FILES", c.msccl_xml_files, "schedule files to use, ':' between them"},
      {"MSCCL_ALGO_DIR", c.msccl_algo_dir, "folder of schedule files to use"},
      {"WEFT_INIT_TIMEOUT", fmt::format("{}", c.init_timeout_s),
       "seconds until a missing rank fails the init"},
      {"WEFT_TIMEOUT", fmt::format("{}", c.timeout_s),
       "seconds a collective may wait; 0: for ever"},
      {"WEFT_STALL_WARNING", fmt::format("{}", c.stall_warning_s),
       "seconds until a waiting rank says for whom"},
      {"WEFT_SECRET", c.secret.empty() ? "" : "(set)", "shared secret to use with NCCL_COMM_ID"},
      {"WEFT_PLAN", c.plan, "force generators: all_reduce=ring,broadcast=tree"},
      {"WEFT_SCHEDULES", c.schedules, "schedule files and folders to use, ':' between them"},
      {"WEFT_RING_BYTES", fmt::format("{}", c.ring_bytes), "FIFO per peer and channel"},
      {"WEFT_SLICE_BYTES", fmt::format("{}", c.slice_bytes), "most bytes one step moves at once"},
      {"WEFT_ZERO_COPY_BYTES", fmt::format("{}", c.zero_copy_bytes),
       "hand over addresses from this size on"},
      {"WEFT_PROXY_THREADS", fmt::format("{}", c.proxy_threads), "threads that serve the network"},
      {"WEFT_HOST_MODE", fmt::format("{:d}", c.host_mode), "1: ignore GPUs"},
      {"WEFT_CTA_BYTES", fmt::format("{}", c.cta_bytes), "GPU: data per thread block"},
      {"WEFT_STAGE_BYTES", fmt::format("{}", c.stage_bytes),
       "GPU: memory that all ranks can reach, for private buffers"},
      {"WEFT_PACKED_BYTES", fmt::format("{}", c.packed_bytes),
       "GPU: low-latency protocol while a rank sends no more than this"},
      {"NCCL_P2P_DISABLE", fmt::format("{:d}", c.p2p_disable),
       "1: data between GPUs goes through host memory"},
      {"WEFT_LOSE_PROBES", fmt::format("{:d}", c.lose_probes),
       "for tests: 1: as if peer-to-peer writes between GPUs got lost"},
      {"NCCL_GRAPH_MIXING_SUPPORT", fmt::format("{:d}", c.graph_mixing),
       "GPU: 0: no order between graphs and what runs on other streams meanwhile"},
      {"NCCL_MAX_CTAS", fmt::format("{}", c.max_ctas), "GPU: most thread blocks per operation"},
      {"WEFT_COPY_ENGINES", fmt::format("{:d}", c.copy_engines),
       "GPU: 1: move data without thread blocks, as CTA policy ZERO does"},
      {"WEFT_WORKERS", fmt::format("{}", c.workers), "helper threads in host mode; -1: cores - 1"},
      {"NCCL_TOPO_FILE", c.topo_file, "a file that describes this machine"},
      {"NCCL_TOPO_DUMP_FILE", c.topo_dump_file, "where to write this machine, in NCCL's format"},
      {"NCCL_TOPO_DUMP_FILE_RANK", fmt::format("{}", c.topo_dump_rank), "the rank that writes it"},
      {"WEFT_CATALOGUE", c.catalogue, "folder of machines that go before the built-in ones"},
      {"WEFT_SOLVER_PLUGIN", c.solver_plugin, "the solver that synthesis uses; none: no solver"},
  };
}

}  // namespace weft
