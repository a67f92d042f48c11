// How environment variables become a Config.
#include "src/base/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "src/base/error.h"
#include "src/base/variables.h"
#include "src/transport/proxy.h"
#include "tests/support/environment.h"

namespace weft::test {
namespace {

Config with(const char* name, const char* value) {
  const ScopedEnvironment environment{{name, value}};
  return Config::from_environment();
}

TEST(Config, HasItsDefaultsWhereTheEnvironmentSaysNothing) {
  const ScopedEnvironment none{
      {"WEFT_RING_BYTES", {}}, {"WEFT_SLICE_BYTES", {}}, {"NCCL_COMM_BLOCKING", {}}};
  const Config config = Config::from_environment(), defaults;
  EXPECT_EQ(config.ring_bytes, defaults.ring_bytes);
  EXPECT_EQ(config.slice_bytes, defaults.slice_bytes);
  EXPECT_EQ(config.comm_blocking, -1);
}

TEST(Config, TakesTextsAsTheyAre) {
  EXPECT_EQ(with("NCCL_DEBUG", "info").debug, "info");
  EXPECT_EQ(with("NCCL_SOCKET_IFNAME", "^docker,lo").socket_ifname, "^docker,lo");
  EXPECT_EQ(with("NCCL_HOSTID", "box 7").host_id, "box 7");
  EXPECT_EQ(with("WEFT_PLAN", "all_reduce=ring").plan, "all_reduce=ring");
}

TEST(Config, ReadsNumbersWithUnits) {
  EXPECT_EQ(with("WEFT_ZERO_COPY_BYTES", "12345").zero_copy_bytes, 12345u);
  EXPECT_EQ(with("WEFT_ZERO_COPY_BYTES", "4k").zero_copy_bytes, 4096u);
  EXPECT_EQ(with("WEFT_ZERO_COPY_BYTES", "3M").zero_copy_bytes, 3u << 20);
  EXPECT_EQ(with("WEFT_ZERO_COPY_BYTES", "2G").zero_copy_bytes, size_t{2} << 30);
  EXPECT_EQ(with("WEFT_ZERO_COPY_BYTES", "0x100").zero_copy_bytes, 256u);
  EXPECT_EQ(with("WEFT_WORKERS", "0").workers, 0);
  EXPECT_EQ(with("NCCL_COMM_BLOCKING", "1").comm_blocking, 1);
  EXPECT_TRUE(with("NCCL_SHM_DISABLE", "1").shm_disable);
  EXPECT_FALSE(with("NCCL_SHM_DISABLE", "0").shm_disable);
  EXPECT_TRUE(with("WEFT_COPY_ENGINES", "1").copy_engines);
  EXPECT_FALSE(with("WEFT_COPY_ENGINES", "0").copy_engines);
  EXPECT_EQ(with("WEFT_TIMEOUT", "2.5").timeout_s, 2.5);
}

TEST(Config, KeepsTheDefaultWhereANumberIsNone) {
  const Config defaults;
  EXPECT_EQ(with("WEFT_ZERO_COPY_BYTES", "many").zero_copy_bytes, defaults.zero_copy_bytes);
  EXPECT_EQ(with("WEFT_ZERO_COPY_BYTES", "").zero_copy_bytes, defaults.zero_copy_bytes);
  EXPECT_EQ(with("WEFT_TIMEOUT", "soon").timeout_s, defaults.timeout_s);
  EXPECT_EQ(with("WEFT_TIMEOUT", "3s").timeout_s, defaults.timeout_s);
}

TEST(Config, MakesRoomForFourSlicesInARing) {
  for (const char* slice : {"0", "1", "63", "64", "100", "4096", "1M"}) {
    const ScopedEnvironment environment{{"WEFT_SLICE_BYTES", slice}, {"WEFT_RING_BYTES", "1"}};
    const Config config = Config::from_environment();
    EXPECT_GE(config.slice_bytes, 64u);
    EXPECT_EQ(config.slice_bytes % 64, 0u);
    EXPECT_EQ(config.ring_bytes % 64, 0u);
    EXPECT_GE(config.ring_bytes, 4 * (config.slice_bytes + 64)) << slice;
  }
}

TEST(Config, SaysWhichNumbersItCouldNotRead) {
  const Config config = with("NCCL_MAX_CTAS", "many");
  ASSERT_EQ(config.complaints.size(), 1u);
  EXPECT_NE(config.complaints[0].find("NCCL_MAX_CTAS=many"), std::string::npos);
  EXPECT_TRUE(with("NCCL_MAX_CTAS", "8").complaints.empty());
  EXPECT_EQ(with("NCCL_NET_GDR_LEVEL", "PIXX").complaints.size(), 1u);
  for (const char* level : {"LOC", "pxb", "0", "5"})
    EXPECT_TRUE(with("NCCL_NET_GDR_LEVEL", level).complaints.empty()) << level;
}

TEST(Config, TakesNumbersOnlyAsAWhole) {
  constexpr std::pair<const char*, const char*> kBad[] = {
      {"WEFT_TIMEOUT", "5s"},           {"NCCL_BUFFSIZE", "12abc"},
      {"NCCL_BUFFSIZE", "4MB"},         {"NCCL_MAX_CTAS", "1.5"},
      {"NCCL_MAX_CTAS", "4294967297"},  {"NCCL_BUFFSIZE", "99999999999999999999"},
      {"NCCL_BUFFSIZE", "9999999999G"}, {"NCCL_SHM_DISABLE", "yes"},
      {"WEFT_TIMEOUT", "nan"},          {"WEFT_TIMEOUT", "inf"},
      {"WEFT_TIMEOUT", "1e999"},        {"WEFT_TIMEOUT", "1.1e9"},
      {"WEFT_TIMEOUT", "-5"},           {"WEFT_INIT_TIMEOUT", "-1"},
      {"WEFT_STALL_WARNING", "-1"},     {"WEFT_IB_RECOVERY", "-0.5"},
      {"WEFT_PEER_TIMEOUT", "0"},       {"WEFT_PEER_TIMEOUT", "1e-9"},
      {"WEFT_PEER_TIMEOUT", "1e8"},     {"WEFT_BACKGROUND_SYNTHESIS", "-1"},
      {"WEFT_SYNTHESIS_SECONDS", "-2"}, {"WEFT_SYNTHESIS_SECONDS", "-inf"},
      {"NCCL_BUFFSIZE", "-1"},          {"WEFT_SLICE_BYTES", "-4K"},
      {"WEFT_CTA_BYTES", "-1"},         {"WEFT_SHARE_BYTES", "-1G"}};
  for (const auto& [name, value] : kBad) {
    const Config config = with(name, value);
    const std::string both = std::string(name) + "=" + value;
    ASSERT_EQ(config.complaints.size(), 1u) << both;
    try {
      config.require_valid();
      ADD_FAILURE() << "accepted " << both;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ncclInvalidUsage);
      EXPECT_NE(std::string(error.what()).find(both), std::string::npos) << error.what();
    }
  }
  EXPECT_NO_THROW(with("NCCL_BUFFSIZE", "0x10K ").require_valid());
  EXPECT_EQ(with("WEFT_TIMEOUT", "5").timeout_s, 5);
}

TEST(Config, TakesNegativeSecondsOnlyWhereTheyHaveAMeaning) {
  for (const char* seconds : {"-1", "0", "2.5", "1e9"}) {
    const Config config = with("WEFT_SYNTHESIS_SECONDS", seconds);
    EXPECT_TRUE(config.complaints.empty()) << seconds;
    EXPECT_EQ(config.synthesis_seconds, std::stod(seconds));
  }
  for (const char* name : {"WEFT_TIMEOUT", "WEFT_STALL_WARNING", "WEFT_BACKGROUND_SYNTHESIS"})
    EXPECT_TRUE(with(name, "0").complaints.empty()) << name;
  EXPECT_EQ(with("WEFT_TIMEOUT", "-5").timeout_s, Config().timeout_s);
  EXPECT_EQ(with("NCCL_BUFFSIZE", "-1").ring_bytes, Config().ring_bytes);
  EXPECT_EQ(with("WEFT_PEER_TIMEOUT", "0.5").peer_timeout_s, 0.5);
}

TEST(Config, KnowsTheWordsForAddressFamilies) {
  for (const char* name : {"NCCL_SOCKET_FAMILY", "NCCL_IB_ADDR_FAMILY"}) {
    for (const char* word : {"AF_INET", "AF_INET6", ""})
      EXPECT_TRUE(with(name, word).complaints.empty()) << name << "=" << word;
    for (const char* word : {"AF_INET4", "af_inet6", "6", "AF_INET6 "}) {
      const Config config = with(name, word);
      ASSERT_EQ(config.complaints.size(), 1u) << name << "=" << word;
      EXPECT_TRUE(config.complaints[0].starts_with(std::string(name) + "=" + word + " is none of"))
          << config.complaints[0];
    }
  }
}

TEST(Config, RefusesANegativeScratchSize) {
  for (const char* bytes : {"-1", "-1M"}) {
    const Config config = with("WEFT_SCRATCH_BYTES", bytes);
    EXPECT_EQ(config.scratch_bytes, 0u) << bytes;
    EXPECT_EQ(config.complaints.size(), 1u) << bytes;
  }
  EXPECT_TRUE(with("WEFT_SCRATCH_BYTES", "0").complaints.empty());
  EXPECT_EQ(with("WEFT_SCRATCH_BYTES", "1").scratch_bytes, 1u);
}

TEST(Config, TakesNcclsOtherNames) {
  EXPECT_EQ(with("NCCL_BUFFSIZE", "8M").ring_bytes, 8u << 20);
  EXPECT_EQ(with("NCCL_BUFFSIZE", "8M").net_ring_bytes, 8u << 20);
  EXPECT_TRUE(with("NCCL_P2P_LEVEL", "loc").p2p_disable);
  EXPECT_FALSE(with("NCCL_P2P_LEVEL", "SYS").p2p_disable);
  EXPECT_TRUE(with("NCCL_CTA_POLICY", "2").copy_engines);
  EXPECT_FALSE(with("NCCL_CTA_POLICY", "1").copy_engines);
  EXPECT_FALSE(with("NCCL_LOCAL_REGISTER", "0").local_register);
  EXPECT_FALSE(with("NCCL_WIN_ENABLE", "0").win_enable);
}

TEST(ConfFile, HasAKeyAndAValueInALine) {
  const auto values = parse_conf("# NCCL_NET=a\n\n NCCL_NET = b \r\nNCCL_NET=c\nword\nA==x\n");
  const std::map<std::string, std::string> expected{{"NCCL_NET", "b"}, {"A", "=x"}};
  EXPECT_EQ(values, expected);
}

TEST(ConfFile, IsReadForWhatTheEnvironmentDoesNotSay) {
  const std::string path = "/tmp/weft-conf-test." + std::to_string(getpid());
  std::ofstream(path) << "NCCL_HOSTID=file\nNCCL_NET_PLUGIN=file\nNCCL_MAX_CTAS=5\n";
  const ScopedEnvironment environment{{"NCCL_CONF_FILE", path},
                                      {"NCCL_HOSTID", "environment"},
                                      {"NCCL_NET_PLUGIN", {}},
                                      {"NCCL_MAX_CTAS", {}}};
  const Config config = Config::from_environment();
  unlink(path.c_str());
  EXPECT_EQ(config.host_id, "environment");
  EXPECT_EQ(config.net_plugin, "file");
  EXPECT_EQ(config.max_ctas, 5);
}

TEST(EnvironmentNotes, SayWhatBecameOfEachVariable) {
  const std::string path = "/tmp/weft-conf-notes." + std::to_string(getpid());
  std::ofstream(path) << "NCCL_NTHREADS=256\n";
  const ScopedEnvironment environment{{"NCCL_CONF_FILE", path},    {"NCCL_HOSTID", "h"},
                                      {"NCCL_NVLS_ENABLE", "1"},   {"NCCL_RAS_TIMEOUT_FACTOR", "3"},
                                      {"NCCL_NO_SUCH_THING", "3"}, {"NCCL_MAX_CTAS", "few"},
                                      {"NCCL_NTHREADS", {}},       {"NCCL_MIN_NCHANNELS", "4"}};
  std::string all;
  for (const EnvironmentNote& note : environment_notes(Config::from_environment())) {
    all += note.text + "\n";
    EXPECT_EQ(note.warns, note.text.starts_with("NCCL_MIN_NCHANNELS=")) << note.text;
  }
  unlink(path.c_str());
  for (const char* part :
       {"NCCL_HOSTID set by the environment to h\n",
        "NCCL_NVLS_ENABLE=1 (from the environment) has",
        "NCCL_RAS_TIMEOUT_FACTOR=3 (from the environment) has no effect: the RAS port",
        "NCCL_NO_SUCH_THING=3 (from the environment) has no effect: Weft does not know it\n",
        "NCCL_NTHREADS=256 (from a configuration file) has no effect", "NCCL_MAX_CTAS=few is no"})
    EXPECT_NE(all.find(part), std::string::npos) << part << " is not in\n" << all;
}

// Tiers 1 and 2 of the variables in public recipes, and variables that are for other software.
constexpr const char* kWhatPeopleSet[] = {
    "DEBUG", "SOCKET_IFNAME", "ALGO", "NVLS_ENABLE", "P2P_DISABLE", "NET_GDR_LEVEL",
    "MIN_NCHANNELS", "MAX_NCHANNELS", "IB_HCA", "IB_DISABLE", "IB_QPS_PER_CONNECTION",
    "TUNER_PLUGIN", "DEBUG_SUBSYS", "IB_GID_INDEX", "IB_TIMEOUT", "NET_PLUGIN", "PROTO", "BUFFSIZE",
    "CROSS_NIC", "TOPO_FILE", "NET", "SHM_DISABLE", "DEBUG_FILE", "P2P_LEVEL", "CUMEM_ENABLE",
    "MNNVL_ENABLE", "IB_TC", "IB_SL", "IB_RETRY_CNT", "IB_SPLIT_DATA_ON_QPS",
    "IB_PCI_RELAXED_ORDERING", "IB_ADAPTIVE_ROUTING", "P2P_NET_CHUNKSIZE", "SOCKET_NTHREADS",
    "NSOCKS_PERTHREAD", "MIN_CTAS", "MAX_CTAS", "COMM_ID", "HOSTID", "TOPO_DUMP_FILE", "GRAPH_FILE",
    "GRAPH_DUMP_FILE", "IGNORE_CPU_AFFINITY", "COLLNET_ENABLE", "PXN_DISABLE", "P2P_PXN_LEVEL",
    "DMABUF_ENABLE", "SOCKET_FAMILY", "IB_ADDR_FAMILY", "IB_ADDR_RANGE", "IB_ROCE_VERSION_NUM",
    "COMM_BLOCKING", "LAUNCH_MODE", "GRAPH_REGISTER", "LOCAL_REGISTER", "RAS_ENABLE",
    "PROFILER_PLUGIN", "CTA_POLICY", "NTHREADS", "CHECK_MODE", "CHECK_POINTERS", "SET_THREAD_NAME",
    "WIN_ENABLE", "RUNTIME_CONNECT", "MULTI_RANK_GPU_ENABLE", "FASTRAK_ENABLE",
    "GPUDIRECTTCPX_CTRL_DEV", "TUNER_CONFIG_PATH", "ASYNC_ERROR_HANDLING", "LL_THRESHOLD",
    "TREE_THRESHOLD",
    // The others in NCCL's user guide.
    "ALLOC_P2P_NET_LL_BUFFERS", "CHECKS_DISABLE", "GRAPH_DUMP_FILE_RANK", "GRAPH_STREAM_ORDERING",
    "IGNORE_COLLNET_MISMATCH", "IGNORE_NET_MISMATCH", "IPC_USE_ABSTRACT_SOCKET",
    "LAUNCH_RACE_FATAL", "LEGACY_CUDA_REGISTER", "MEM_SYNC_DOMAIN", "NETDEVS_POLICY",
    "NET_MERGE_POLICY", "NVB_DISABLE", "P2P_LL_THRESHOLD", "PXN_C2C", "SOCKET_MAGIC",
    "SOCKET_POLL_TIMEOUT_MSEC", "SOCKET_RETRY_CNT", "SOCKET_RETRY_SLEEP_MSEC"};

TEST(EnvironmentNotes, KnowWhatPeopleSet) {
  for (const char* name : kWhatPeopleSet) {
    const std::string variable = std::string("NCCL_") + name;
    const ScopedEnvironment environment{{variable, "1"}};
    bool told = false;
    for (const auto& [note, warns] : environment_notes(Config{})) {
      if (!note.starts_with(variable + "=") && !note.starts_with(variable + " ")) continue;
      told = true;
      EXPECT_EQ(note.find("does not know"), std::string::npos) << note;
    }
    EXPECT_TRUE(told) << variable;
  }
}

TEST(Config, IsDescribedWithoutItsSecret) {
  const ScopedEnvironment environment{{"WEFT_SECRET", "swordfish"}, {"NCCL_HOSTID", "box 7"}};
  bool host_id = false;
  for (const ConfigEntry& entry : describe(Config::from_environment())) {
    EXPECT_FALSE(entry.name.empty());
    EXPECT_FALSE(entry.meaning.empty()) << entry.name;
    EXPECT_EQ(entry.value.find("swordfish"), std::string::npos) << entry.name;
    host_id = host_id || (entry.name == "NCCL_HOSTID" && entry.value == "box 7");
  }
  EXPECT_TRUE(host_id);
}

TEST(Config, ProxyThreadsFollowARanksShareOfItsCores) {
  EXPECT_EQ(proxy_threads(0, false, 16, 1), 1) << "in host mode threads that wait do the work";
  EXPECT_EQ(proxy_threads(0, true, 16, 4), 3) << "all ranks may use all cores";
  EXPECT_EQ(proxy_threads(0, true, 4, 1), 3) << "a launcher has given each its own";
  EXPECT_EQ(proxy_threads(0, true, 64, 1), 4);
  EXPECT_EQ(proxy_threads(0, true, 1, 1), 1);
  EXPECT_EQ(proxy_threads(0, true, 2, 8), 1);
  EXPECT_EQ(proxy_threads(7, true, 2, 8), 7) << "WEFT_PROXY_THREADS";
}

}  // namespace
}  // namespace weft::test
