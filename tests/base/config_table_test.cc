// The table of environment variables: each one sets its member and no other, and each is
// documented.
#include "src/base/config_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <set>

#include "src/base/variables.h"
#include "tests/support/environment.h"

namespace weft::test {
namespace {

struct VariableOf {
  const char* name;
  ConfigMember member;
};

// Written by hand from NCCL's documentation and ours, not from the table: a row of the table that
// names the wrong member shows.
const VariableOf kVariableOf[] = {
    {"NCCL_CONF_FILE", &Config::conf_file},
    {"NCCL_DEBUG", &Config::debug},
    {"NCCL_DEBUG_SUBSYS", &Config::debug_subsys},
    {"NCCL_DEBUG_FILE", &Config::debug_file},
    {"NCCL_DEBUG_TIMESTAMP_LEVELS", &Config::debug_timestamp_levels},
    {"NCCL_DEBUG_TIMESTAMP_FORMAT", &Config::debug_timestamp_format},
    {"NCCL_SOCKET_IFNAME", &Config::socket_ifname},
    {"NCCL_SOCKET_FAMILY", &Config::socket_family},
    {"NCCL_COMM_ID", &Config::comm_id},
    {"NCCL_HOSTID", &Config::host_id},
    {"NCCL_SHM_DISABLE", &Config::shm_disable},
    {"NCCL_NET_PLUGIN", &Config::net_plugin},
    {"NCCL_RAS_ENABLE", &Config::ras_enable},
    {"NCCL_RAS_ADDR", &Config::ras_addr},
    {"NCCL_NVTX_DISABLE", &Config::nvtx_disable},
    {"NCCL_PROFILER_PLUGIN", &Config::profiler_plugin},
    {"NCCL_NET", &Config::net},
    {"NCCL_IB_DISABLE", &Config::ib_disable},
    {"NCCL_IB_HCA", &Config::ib_hca},
    {"NCCL_IB_GID_INDEX", &Config::ib_gid_index},
    {"NCCL_IB_ADDR_FAMILY", &Config::ib_addr_family},
    {"NCCL_IB_ADDR_RANGE", &Config::ib_addr_range},
    {"NCCL_IB_ROCE_VERSION_NUM", &Config::ib_roce_version},
    {"NCCL_IB_TIMEOUT", &Config::ib_timeout},
    {"NCCL_IB_RETRY_CNT", &Config::ib_retry_cnt},
    {"NCCL_IB_PKEY", &Config::ib_pkey},
    {"NCCL_IB_SL", &Config::ib_sl},
    {"NCCL_IB_TC", &Config::ib_tc},
    {"NCCL_IB_QPS_PER_CONNECTION", &Config::ib_qps_per_connection},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", &Config::ib_split_data_on_qps},
    {"NCCL_IB_PCI_RELAXED_ORDERING", &Config::ib_relaxed_ordering},
    {"NCCL_IB_ADAPTIVE_ROUTING", &Config::ib_adaptive_routing},
    {"NCCL_IB_AR_THRESHOLD", &Config::ib_ar_threshold},
    {"WEFT_IB_RECOVERY", &Config::ib_recovery_s},
    {"NCCL_SOCKET_NTHREADS", &Config::socket_nthreads},
    {"NCCL_NSOCKS_PERTHREAD", &Config::nsocks_per_thread},
    {"NCCL_COMM_BLOCKING", &Config::comm_blocking},
    {"NCCL_ALGO", &Config::algo},
    {"NCCL_PROTO", &Config::proto},
    {"NCCL_MAX_NCHANNELS", &Config::max_channels},
    {"NCCL_TUNER_PLUGIN", &Config::tuner_plugin},
    {"MSCCL_XML_FILES", &Config::msccl_xml_files},
    {"MSCCL_ALGO_DIR", &Config::msccl_algo_dir},
    {"WEFT_INIT_TIMEOUT", &Config::init_timeout_s},
    {"WEFT_TIMEOUT", &Config::timeout_s},
    {"WEFT_PEER_TIMEOUT", &Config::peer_timeout_s},
    {"WEFT_STALL_WARNING", &Config::stall_warning_s},
    {"WEFT_TRACE", &Config::trace},
    {"WEFT_SECRET", &Config::secret},
    {"WEFT_PLAN", &Config::plan},
    {"WEFT_COMPRESS", &Config::compress},
    {"WEFT_ACCUMULATE", &Config::accumulate},
    {"WEFT_PRIORITY", &Config::priority},
    {"WEFT_COMPRESS_LOSSES", &Config::compress_losses_bytes},
    {"WEFT_HELPERS", &Config::helpers},
    {"WEFT_HELPERS_FROM", &Config::helpers_from},
    {"WEFT_SCHEDULES", &Config::schedules},
    {"NCCL_BUFFSIZE", &Config::ring_bytes},
    {"WEFT_RING_BYTES", &Config::ring_bytes},
    {"WEFT_SLICE_BYTES", &Config::slice_bytes},
    {"WEFT_ZERO_COPY_BYTES", &Config::zero_copy_bytes},
    {"WEFT_LEND_PAGES", &Config::lend_pages},
    {"WEFT_WIRE", &Config::wire},
    {"WEFT_PROXY_THREADS", &Config::proxy_threads},
    {"WEFT_HOST_MODE", &Config::host_mode},
    {"WEFT_BLOCK_SHARE", &Config::block_share},
    {"WEFT_LANE_FIFO_BYTES", &Config::lane_fifo_bytes},
    {"WEFT_LANE_SLOTS", &Config::lane_slots},
    {"WEFT_EAGER_BYTES", &Config::eager_bytes},
    {"WEFT_STRAIGHT", &Config::straight},
    {"WEFT_NET_LANES", &Config::net_lanes},
    {"WEFT_SHARE_BUFFERS", &Config::share_buffers},
    {"WEFT_SYSTEM_SCOPE", &Config::system_scope},
    {"WEFT_CTA_BYTES", &Config::cta_bytes},
    {"WEFT_SCRATCH_BYTES", &Config::scratch_bytes},
    {"WEFT_SHARE_BYTES", &Config::share_bytes},
    {"WEFT_PACKET_BYTES", &Config::packet_bytes},
    {"NCCL_P2P_DISABLE", &Config::p2p_disable},
    {"NCCL_P2P_LEVEL", &Config::p2p_level},
    {"NCCL_LOCAL_REGISTER", &Config::local_register},
    {"NCCL_WIN_ENABLE", &Config::win_enable},
    {"NCCL_CUMEM_ENABLE", &Config::cumem_enable},
    {"NCCL_NET_GDR_LEVEL", &Config::net_gdr_level},
    {"NCCL_NET_FORCE_FLUSH", &Config::net_force_flush},
    {"NCCL_DMABUF_ENABLE", &Config::dmabuf_enable},
    {"WEFT_LOSE_FLUSHES", &Config::lose_flushes},
    {"WEFT_LOSE_PROBES", &Config::lose_probes},
    {"NCCL_GRAPH_MIXING_SUPPORT", &Config::graph_mixing},
    {"WEFT_COUNT_GRAPHS", &Config::count_graphs},
    {"NCCL_MAX_CTAS", &Config::max_ctas},
    {"NCCL_CTA_POLICY", &Config::cta_policy},
    {"WEFT_COPY_ENGINES", &Config::copy_engines},
    {"WEFT_WORKERS", &Config::workers},
    {"NCCL_TOPO_FILE", &Config::topo_file},
    {"NCCL_TOPO_DUMP_FILE", &Config::topo_dump_file},
    {"NCCL_TOPO_DUMP_FILE_RANK", &Config::topo_dump_rank},
    {"NCCL_GRAPH_DUMP_FILE", &Config::graph_dump_file},
    {"NCCL_GRAPH_DUMP_FILE_RANK", &Config::graph_dump_rank},
    {"WEFT_CATALOGUE", &Config::catalogue},
    {"WEFT_TOPO", &Config::topo},
    {"WEFT_CACHE", &Config::cache},
    {"WEFT_SYNTHESIS", &Config::synthesis},
    {"WEFT_SYNTHESIS_SECONDS", &Config::synthesis_seconds},
    {"WEFT_BACKGROUND_SYNTHESIS", &Config::background_seconds},
    {"WEFT_SOLVER_PLUGIN", &Config::solver_plugin},
};

// A value that no default is, and that no rule about several variables changes.
void vary(std::string& value) { value = "some text"; }
void vary(std::optional<std::string>& value) { value = "some text"; }
void vary(bool& value) { value = !value; }
void vary(int& value) { value += 4; }
void vary(size_t& value) { value += 64; }
void vary(double& value) { value += 0.5; }

std::string as_text(const std::string& value) { return value; }
std::string as_text(const std::optional<std::string>& value) { return *value; }
std::string as_text(bool value) { return value ? "1" : "0"; }
template <typename Number>
std::string as_text(Number value) {
  return fmt::format("{}", value);
}

// None of the variables is set, and there is no configuration file of the user.
class ConfigTable : public testing::Test {
 protected:
  ConfigTable() {
    for (const ConfigVariable& row : config_variables()) set(row.name, std::nullopt);
    set("HOME", "/nonexistent");
  }
  ~ConfigTable() override {
    while (!set_.empty()) set_.pop_front();  // the latest first
  }
  void set(const char* name, std::optional<std::string> value) {
    using Settings = std::initializer_list<ScopedEnvironment::Setting>;
    set_.emplace_front(Settings{{name, std::move(value)}});
  }

 private:
  std::list<ScopedEnvironment> set_;
};

TEST_F(ConfigTable, GivesEveryVariableItsMemberAndNoOther) {
  const Config defaults = Config::from_environment();
  const std::vector<ConfigEntry> before = describe(defaults);
  for (const VariableOf& row : kVariableOf) {
    SCOPED_TRACE(row.name);
    std::visit(
        [&](auto member) {
          Config wanted = defaults;
          vary(wanted.*member);
          if constexpr (std::is_same_v<decltype(member), std::string Config::*>) {
            if (member == &Config::wire) wanted.wire = "encrypt";  // not any text
            if (member == &Config::accumulate) wanted.accumulate = "float";
            if (member == &Config::socket_family) wanted.socket_family = "AF_INET6";
            if (member == &Config::ib_addr_family) wanted.ib_addr_family = "AF_INET6";
            if (member == &Config::net_gdr_level) wanted.net_gdr_level = "PHB";
          }
          const ScopedEnvironment environment{{row.name, as_text(wanted.*member)}};
          const Config config = Config::from_environment();
          EXPECT_EQ(config.*member, wanted.*member);
          EXPECT_TRUE(config.complaints.empty());
          // Another variable's value changes only where both set one member.
          const std::vector<ConfigEntry> after = describe(config);
          for (size_t i = 0; i < after.size(); i++)
            EXPECT_EQ(after[i].value != before[i].value,
                      config_variables()[i].member == ConfigMember(member))
                << after[i].name;
        },
        row.member);
  }
}

TEST_F(ConfigTable, IsTestedAsAWhole) {
  std::multiset<std::string> table, tested;
  for (const ConfigVariable& row : config_variables()) table.insert(row.name);
  for (const VariableOf& row : kVariableOf) tested.insert(row.name);
  EXPECT_EQ(table, tested);
}

TEST_F(ConfigTable, IsDocumentedWithTheVariablesWithoutEffectAndNothingElse) {
  std::ifstream page(WEFT_SOURCE_DIR "/docs/environment.md");
  ASSERT_TRUE(page.good());
  std::multiset<std::string> documented, known;
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| `")) documented.insert(line.substr(3, line.find('`', 3) - 3));
  for (const ConfigVariable& row : config_variables()) known.insert(row.name);
  for (const IdleVariable& idle : idle_variables()) known.insert(idle.name);
  EXPECT_EQ(documented, known);
}

TEST_F(ConfigTable, LetsCopyEnginesOverruleThePolicy) {
  set("NCCL_CTA_POLICY", "2");
  EXPECT_TRUE(Config::from_environment().copy_engines);
  set("WEFT_COPY_ENGINES", "0");
  EXPECT_FALSE(Config::from_environment().copy_engines);
  set("WEFT_COPY_ENGINES", "maybe");
  EXPECT_TRUE(Config::from_environment().copy_engines);
  EXPECT_EQ(Config::from_environment().complaints.size(), 1u);
}

TEST_F(ConfigTable, LetsOurNameOfRingBytesOverruleNccls) {
  set("NCCL_BUFFSIZE", "4M");
  EXPECT_EQ(Config::from_environment().ring_bytes, 4u << 20);
  set("WEFT_RING_BYTES", "2M");
  EXPECT_EQ(Config::from_environment().ring_bytes, 2u << 20);
  EXPECT_EQ(Config::from_environment().net_ring_bytes, 2u << 20);
}

TEST_F(ConfigTable, PutsTheCacheWhereTheUserKeepsCaches) {
  set("XDG_CACHE_HOME", std::nullopt);
  EXPECT_EQ(Config::from_environment().cache, "/nonexistent/.cache/weft");
  set("XDG_CACHE_HOME", "/somewhere");
  EXPECT_EQ(Config::from_environment().cache, "/somewhere/weft");
  set("WEFT_CACHE", "none");
  EXPECT_EQ(Config::from_environment().cache, "");
}

TEST_F(ConfigTable, TellsAnEmptyPluginFromNone) {
  EXPECT_FALSE(Config::from_environment().net_plugin.has_value());
  set("NCCL_NET_PLUGIN", "");
  EXPECT_EQ(Config::from_environment().net_plugin, "");
  set("NCCL_IB_ADDR_FAMILY", "");
  EXPECT_EQ(Config::from_environment().ib_addr_family, "AF_INET");
}

}  // namespace
}  // namespace weft::test
