// How environment variables become a Config.
#include "src/base/config.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weft::test
