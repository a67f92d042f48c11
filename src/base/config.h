// What the user has set: every environment variable that Weft reads, as a typed member with its
// default. config_table.cc says which variable sets which member and what it means.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace weft {

struct Config {
  // More variables, and the log.
  std::string conf_file;
  std::string debug, debug_subsys, debug_file;
  std::string debug_timestamp_levels = "WARN", debug_timestamp_format = "[%F %T] ";

  // How ranks find each other.
  std::string socket_ifname, socket_family;
  std::string comm_id, secret;
  std::string host_id;
  int comm_blocking = -1;
  double init_timeout_s = 300;
  double timeout_s = 0;
  double peer_timeout_s = 10;
  double stall_warning_s = 30;

  // Plugins. Unset and empty differ: unset means the usual file name.
  std::optional<std::string> net_plugin, tuner_plugin, profiler_plugin;
  bool nvtx_disable = false;
  bool ras_enable = false;
  std::string ras_addr = "localhost:28028";
  std::string trace;

  // The network.
  std::string net;
  int socket_nthreads = 0, nsocks_per_thread = 0;
  bool lend_pages = true;
  std::string wire = "plain";
  int proxy_threads = 0;
  bool ib_disable = false;
  std::string ib_hca;
  int ib_gid_index = -1;
  std::string ib_addr_family = "AF_INET", ib_addr_range;
  int ib_roce_version = 2;
  int ib_timeout = 20, ib_retry_cnt = 7;
  int ib_pkey = 0, ib_sl = 0, ib_tc = 0;
  int ib_qps_per_connection = 1;
  bool ib_split_data_on_qps = false;
  int ib_relaxed_ordering = 2;
  int ib_adaptive_routing = -2;
  size_t ib_ar_threshold = 8192;
  double ib_recovery_s = 20;

  // Plans.
  std::string algo, proto, plan;
  std::string compress = "off";
  size_t compress_losses_bytes = size_t{1} << 30;
  std::string accumulate = "type", priority = "normal";
  std::string helpers;
  size_t helpers_from = 0;
  int max_channels = 0;
  std::string msccl_xml_files, msccl_algo_dir, schedules;
  std::string topo, topo_file, topo_dump_file, graph_dump_file;
  int topo_dump_rank = 0, graph_dump_rank = 0;
  std::string catalogue, cache;
  std::string synthesis, solver_plugin;
  double synthesis_seconds = -1;
  double background_seconds = 60;

  // Buffers between ranks.
  bool shm_disable = false;
  size_t ring_bytes = 512u << 10, slice_bytes = 64u << 10;
  size_t zero_copy_bytes = 8192;
  // The same where every rank is on a host of its own, unless the user sets the above.
  // Nine segments of loopback TCP make a slice, so that 512 KiB are one. A ring holds four slices.
  size_t net_ring_bytes = 2560u << 10, net_slice_bytes = 576u << 10;
  // Sums read their data from the ring. With more than two ranks, longer slices leave the cache.
  size_t net_sum_slice_bytes = 512u << 10;
  // GPUs of few hosts have many rings. Short slices follow each other more closely.
  size_t gpu_net_ring_bytes = 2u << 20, gpu_net_slice_bytes = 256u << 10;

  // Host mode and GPUs.
  bool host_mode = false;
  int workers = -1;
  int max_ctas = 0, cta_policy = 0;
  int block_share = -1;  // percent; -1: chosen
  size_t cta_bytes = 16u << 10;
  size_t scratch_bytes = 0;
  size_t lane_fifo_bytes = 0;
  int lane_slots = 0;
  // Between 64 KiB and 1 MiB no size was clearly better, over loopback between ranks that share an
  // H200. Not measured over NICs.
  size_t eager_bytes = 256u << 10;
  bool system_scope = false, straight = true;
  int net_lanes = 1;
  bool share_buffers = true;
  size_t share_bytes = size_t{16} << 30;
  size_t packet_bytes = 1u << 20;
  bool copy_engines = false;
  bool graph_mixing = true;
  bool count_graphs = false;
  bool p2p_disable = false;
  std::string p2p_level;
  bool local_register = true, win_enable = true, cumem_enable = true;
  bool lose_probes = false;
  std::string net_gdr_level;
  bool net_force_flush = false, dmabuf_enable = true, lose_flushes = false;

  // One text for each value that could not be read. Defaults stand in for them until
  // require_valid() refuses them.
  std::vector<std::string> complaints;
  // Throws Error(ncclInvalidUsage) with the complaints if there are any.
  void require_valid() const;

  // Reads the environment, and NCCL's configuration files for names that it does not hold.
  static Config from_environment();
};

// One row of the table `weft env` prints.
struct ConfigEntry {
  std::string name, value, meaning;
};
std::vector<ConfigEntry> describe(const Config& config);

}  // namespace weft
