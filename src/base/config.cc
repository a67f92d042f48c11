// Reads the variables listed in config.h from the environment.
#include "src/base/config.h"

#include <fmt/format.h>
#include <strings.h>

#include <cctype>
#include <cstdlib>

#include "src/base/variables.h"

namespace weft {
namespace {

// Values that are no numbers, met while this thread reads a Config.
thread_local std::vector<std::string> bad_values;

std::string text(const char* name) { return variable(name).value_or(""); }

void complain(const char* name, const std::string& word) {
  bad_values.push_back(
      fmt::format("{}={} is no number that can be used: its default stays", name, word));
}

void read(const char* name, double& value) {
  const std::string word = text(name);
  if (word.empty()) return;
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  if (end != word.c_str() && *end == '\0')
    value = number;
  else
    complain(name, word);
}

template <typename Integer>
void read_integer(const char* name, Integer& value) {
  const std::string word = text(name);
  if (word.empty()) return;
  char* end = nullptr;
  long long number = std::strtoll(word.c_str(), &end, 0);
  if (end == word.c_str()) return complain(name, word);
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

void read_flag(const char* name, bool& value) {
  int number = value ? 1 : 0;
  read_integer(name, number);
  value = number != 0;
}

}  // namespace

Config Config::from_environment() {
  Config config;
  bad_values.clear();
  config.conf_file = text("NCCL_CONF_FILE");
  config.debug = text("NCCL_DEBUG");
  config.debug_subsys = text("NCCL_DEBUG_SUBSYS");
  config.debug_file = text("NCCL_DEBUG_FILE");
  config.socket_ifname = text("NCCL_SOCKET_IFNAME");
  config.socket_family = text("NCCL_SOCKET_FAMILY");
  config.comm_id = text("NCCL_COMM_ID");
  config.host_id = text("NCCL_HOSTID");
  read_flag("NCCL_SHM_DISABLE", config.shm_disable);
  config.net_plugin = variable("NCCL_NET_PLUGIN");
  read_flag("NCCL_NVTX_DISABLE", config.nvtx_disable);
  config.profiler_plugin = variable("NCCL_PROFILER_PLUGIN");
  config.net = text("NCCL_NET");
  read_flag("NCCL_IB_DISABLE", config.ib_disable);
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
  read_flag("NCCL_IB_SPLIT_DATA_ON_QPS", config.ib_split_data_on_qps);
  read_integer("NCCL_IB_PCI_RELAXED_ORDERING", config.ib_relaxed_ordering);
  read("WEFT_IB_RECOVERY", config.ib_recovery_s);
  read_integer("NCCL_SOCKET_NTHREADS", config.socket_nthreads);
  read_integer("NCCL_NSOCKS_PERTHREAD", config.nsocks_per_thread);
  read_integer("NCCL_COMM_BLOCKING", config.comm_blocking);
  config.algo = text("NCCL_ALGO");
  config.proto = text("NCCL_PROTO");
  read_integer("NCCL_MAX_NCHANNELS", config.max_channels);
  config.tuner_plugin = variable("NCCL_TUNER_PLUGIN");
  config.msccl_xml_files = text("MSCCL_XML_FILES");
  config.msccl_algo_dir = text("MSCCL_ALGO_DIR");
  read("WEFT_INIT_TIMEOUT", config.init_timeout_s);
  read("WEFT_TIMEOUT", config.timeout_s);
  read("WEFT_STALL_WARNING", config.stall_warning_s);
  config.trace = text("WEFT_TRACE");
  config.secret = text("WEFT_SECRET");
  config.plan = text("WEFT_PLAN");
  config.schedules = text("WEFT_SCHEDULES");
  read_integer("NCCL_BUFFSIZE", config.ring_bytes);
  read_integer("WEFT_RING_BYTES", config.ring_bytes);
  read_integer("WEFT_SLICE_BYTES", config.slice_bytes);
  read_integer("WEFT_ZERO_COPY_BYTES", config.zero_copy_bytes);
  read_integer("WEFT_WORKERS", config.workers);
  read_flag("NCCL_GRAPH_MIXING_SUPPORT", config.graph_mixing);
  read_flag("WEFT_LEND_PAGES", config.lend_pages);
  read_integer("WEFT_PROXY_THREADS", config.proxy_threads);
  read_flag("NCCL_P2P_DISABLE", config.p2p_disable);
  // GPUs of one board or none: further levels say how far apart they may be, a probe shows that.
  config.p2p_level = text("NCCL_P2P_LEVEL");
  if (config.p2p_level == "0" || strcasecmp(config.p2p_level.c_str(), "LOC") == 0)
    config.p2p_disable = true;
  read_flag("WEFT_LOSE_PROBES", config.lose_probes);
  read_flag("WEFT_HOST_MODE", config.host_mode);
  read_flag("NCCL_LOCAL_REGISTER", config.local_register);
  read_flag("NCCL_WIN_ENABLE", config.win_enable);
  read_integer("WEFT_CTA_BYTES", config.cta_bytes);
  if (config.cta_bytes < 1024) config.cta_bytes = 1024;
  read_integer("WEFT_PACKET_BYTES", config.packet_bytes);
  read_integer("WEFT_SCRATCH_BYTES", config.scratch_bytes);
  if (static_cast<int64_t>(config.scratch_bytes) < 0) {
    complain("WEFT_SCRATCH_BYTES", text("WEFT_SCRATCH_BYTES"));
    config.scratch_bytes = 0;
  }
  read_integer("NCCL_MAX_CTAS", config.max_ctas);
  read_integer("NCCL_CTA_POLICY", config.cta_policy);
  config.copy_engines = (config.cta_policy & 2) != 0;
  read_flag("WEFT_COPY_ENGINES", config.copy_engines);
  config.topo_file = text("NCCL_TOPO_FILE");
  config.topo_dump_file = text("NCCL_TOPO_DUMP_FILE");
  read_integer("NCCL_TOPO_DUMP_FILE_RANK", config.topo_dump_rank);
  config.catalogue = text("WEFT_CATALOGUE");
  config.topo = text("WEFT_TOPO");
  config.cache = text("WEFT_CACHE");
  if (config.cache.empty() && !text("XDG_CACHE_HOME").empty())
    config.cache = text("XDG_CACHE_HOME") + "/weft";
  if (config.cache.empty() && !text("HOME").empty()) config.cache = text("HOME") + "/.cache/weft";
  if (config.cache == "none") config.cache.clear();
  config.synthesis = text("WEFT_SYNTHESIS");
  read("WEFT_SYNTHESIS_SECONDS", config.synthesis_seconds);
  config.solver_plugin = text("WEFT_SOLVER_PLUGIN");
  // A ring holds at least four of the largest messages (see lower.cc), each with its 64-byte
  // header.
  if (config.slice_bytes < 64) config.slice_bytes = 64;
  config.slice_bytes = config.slice_bytes / 64 * 64;
  const size_t least = 4 * (config.slice_bytes + 64);
  config.ring_bytes = (config.ring_bytes < least ? least : config.ring_bytes) / 64 * 64;
  if (!text("WEFT_SLICE_BYTES").empty())
    config.net_slice_bytes = config.net_sum_slice_bytes = config.gpu_net_slice_bytes =
        config.slice_bytes;
  if (!text("WEFT_RING_BYTES").empty() || !text("NCCL_BUFFSIZE").empty())
    config.net_ring_bytes = config.gpu_net_ring_bytes = config.ring_bytes;
  config.complaints = std::move(bad_values);
  return config;
}

std::vector<ConfigEntry> describe(const Config& c) {
  return {
      {"NCCL_CONF_FILE", c.conf_file,
       "file of such variables, instead of ~/.nccl.conf; /etc/nccl.conf is read too"},
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
      {"NCCL_NVTX_DISABLE", fmt::format("{:d}", c.nvtx_disable), "GPU: 1: no NVTX ranges"},
      {"NCCL_PROFILER_PLUGIN", c.profiler_plugin.value_or(""),
       "a profiler plugin; none: no plugin; unset: libnccl-profiler.so"},
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
      {"NCCL_ALGO", c.algo, "algorithms to choose from: ring,tree or ^tree"},
      {"NCCL_PROTO", c.proto, "protocols to choose from: LL,LL128,Simple"},
      {"NCCL_MAX_NCHANNELS", fmt::format("{}", c.max_channels), "most channels; 0: as many as fit"},
      {"NCCL_TUNER_PLUGIN", c.tuner_plugin.value_or(""),
       "the tuner plugin to use; none: no plugin"},
      {"MSCCL_XML_FILES", c.msccl_xml_files, "schedule files to use, ':' between them"},
      {"MSCCL_ALGO_DIR", c.msccl_algo_dir, "folder of schedule files to use"},
      {"WEFT_INIT_TIMEOUT", fmt::format("{}", c.init_timeout_s),
       "seconds until a missing rank fails the init"},
      {"WEFT_TIMEOUT", fmt::format("{}", c.timeout_s),
       "seconds a collective may wait; 0: for ever"},
      {"WEFT_STALL_WARNING", fmt::format("{}", c.stall_warning_s),
       "seconds until a waiting rank says for whom"},
      {"WEFT_TRACE", c.trace, "where to write a timeline for Perfetto; %h host, %p pid"},
      {"WEFT_SECRET", c.secret.empty() ? "" : "(set)", "shared secret to use with NCCL_COMM_ID"},
      {"WEFT_PLAN", c.plan, "force generators: all_reduce=ring,broadcast=tree"},
      {"WEFT_SCHEDULES", c.schedules, "schedule files and folders to use, ':' between them"},
      {"NCCL_BUFFSIZE", fmt::format("{}", c.ring_bytes), "older name of WEFT_RING_BYTES"},
      {"WEFT_RING_BYTES", fmt::format("{}", c.ring_bytes), "FIFO per peer and channel"},
      {"WEFT_SLICE_BYTES", fmt::format("{}", c.slice_bytes), "most bytes one step moves at once"},
      {"WEFT_ZERO_COPY_BYTES", fmt::format("{}", c.zero_copy_bytes),
       "hand over addresses from this size on, where that is faster"},
      {"WEFT_LEND_PAGES", fmt::format("{:d}", c.lend_pages),
       "0: sockets copy what goes to peers on this machine instead of lending pages"},
      {"WEFT_PROXY_THREADS", fmt::format("{}", c.proxy_threads),
       "threads that serve the network; 0: one, or where GPUs need it up to four by the rank's "
       "share of its cores"},
      {"WEFT_HOST_MODE", fmt::format("{:d}", c.host_mode), "1: ignore GPUs"},
      {"WEFT_CTA_BYTES", fmt::format("{}", c.cta_bytes), "GPU: data per thread block"},
      {"WEFT_SCRATCH_BYTES", fmt::format("{}", c.scratch_bytes),
       "GPU: memory that all ranks can reach, for private buffers; 0: 96 MiB between processes "
       "of a host, else 32"},
      {"WEFT_PACKET_BYTES", fmt::format("{}", c.packet_bytes),
       "GPU: low-latency protocol while a rank sends no more than this, or about half where "
       "threads share a GPU; while a root receives no more than twice this"},
      {"NCCL_P2P_DISABLE", fmt::format("{:d}", c.p2p_disable),
       "1: data between GPUs goes through host memory"},
      {"NCCL_P2P_LEVEL", c.p2p_level,
       "LOC: as NCCL_P2P_DISABLE=1; other levels: what a probe shows"},
      {"NCCL_LOCAL_REGISTER", fmt::format("{:d}", c.local_register),
       "0: ncclCommRegister is accepted and changes nothing"},
      {"NCCL_WIN_ENABLE", fmt::format("{:d}", c.win_enable),
       "0: ncclCommWindowRegister succeeds and gives no window"},
      {"WEFT_LOSE_PROBES", fmt::format("{:d}", c.lose_probes),
       "for tests: 1: as if peer-to-peer writes between GPUs got lost"},
      {"NCCL_GRAPH_MIXING_SUPPORT", fmt::format("{:d}", c.graph_mixing),
       "GPU: 0: no order between graphs and what runs on other streams meanwhile"},
      {"NCCL_MAX_CTAS", fmt::format("{}", c.max_ctas), "GPU: most thread blocks per operation"},
      {"NCCL_CTA_POLICY", fmt::format("{}", c.cta_policy),
       "GPU: 2 (ZERO): move data without thread blocks; 0 and 1: as always"},
      {"WEFT_COPY_ENGINES", fmt::format("{:d}", c.copy_engines),
       "GPU: 1: move data without thread blocks, as CTA policy ZERO does"},
      {"WEFT_WORKERS", fmt::format("{}", c.workers), "helper threads in host mode; -1: cores - 1"},
      {"NCCL_TOPO_FILE", c.topo_file, "a file that describes this machine"},
      {"NCCL_TOPO_DUMP_FILE", c.topo_dump_file, "where to write this machine, in NCCL's format"},
      {"NCCL_TOPO_DUMP_FILE_RANK", fmt::format("{}", c.topo_dump_rank), "the rank that writes it"},
      {"WEFT_CATALOGUE", c.catalogue, "folder of machines that go before the built-in ones"},
      {"WEFT_TOPO", c.topo, "the machine to plan for: a catalogue name or a file"},
      {"WEFT_CACHE", c.cache, "folder of plans and measured rates; none: no such folder"},
      {"WEFT_SYNTHESIS", c.synthesis, "the library that synthesizes schedules at init; none: no"},
      {"WEFT_SYNTHESIS_SECONDS", fmt::format("{}", c.synthesis_seconds),
       "time for that; -1: what init has; 1 or more: whole searches, for over 32 ranks too"},
      {"WEFT_SOLVER_PLUGIN", c.solver_plugin, "the solver that synthesis uses; none: no solver"},
  };
}

}  // namespace weft
