// See comm_config.h.
#include "src/comm/comm_config.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "src/base/config.h"
#include "src/base/error.h"

namespace weft {
namespace {

void check(const char* field, int value, int least, int most) {
  if (value != NCCL_CONFIG_UNDEF_INT && (value < least || value > most))
    fail(ncclInvalidArgument, "config: {} is {}, it must be in {}..{}", field, value, least, most);
}

// The size of ncclConfig_t in a version of NCCL.
size_t known_bytes(unsigned version) {
  if (version < NCCL_VERSION(2, 17, 0)) return offsetof(ncclConfig_t, cgaClusterSize);
  if (version < NCCL_VERSION(2, 18, 0)) return offsetof(ncclConfig_t, splitShare);
  if (version < NCCL_VERSION(2, 26, 0)) return offsetof(ncclConfig_t, trafficClass);
  if (version < NCCL_VERSION(2, 27, 0)) return offsetof(ncclConfig_t, commName);
  if (version < NCCL_VERSION(2, 28, 0)) return offsetof(ncclConfig_t, nChannelsPerNetPeer);
  return sizeof(ncclConfig_t);
}

}  // namespace

CommConfig CommConfig::from(const ncclConfig_t* user, const CommConfig* parent) {
  CommConfig result = parent != nullptr ? *parent : CommConfig{};
  if (parent != nullptr) result.name.clear();
  result.shares_blocks = parent != nullptr && parent->split_share;
  const Config environment = Config::from_environment();
  environment.require_valid();
  const int forced = environment.comm_blocking;
  if (user != nullptr) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (user->magic != config.magic)
      fail(ncclInvalidArgument,
           "config: magic is {:#x}; initialize it with NCCL_CONFIG_INITIALIZER", user->magic);
    if (user->size < offsetof(ncclConfig_t, cgaClusterSize))
      fail(ncclInvalidArgument, "config: size is {}, too small for any version", user->size);
    // A caller built against an older header has a shorter struct, with padding where newer fields
    // are. Fields that its version lacks keep their defaults.
    std::memcpy(&config, user, std::min({user->size, sizeof config, known_bytes(user->version)}));
    constexpr int kMost = 1 << 16;
    check("blocking", config.blocking, 0, 1);
    check("cgaClusterSize", config.cgaClusterSize, 0, 8);
    check("minCTAs", config.minCTAs, 1, kMost);
    check("maxCTAs", config.maxCTAs, 1, kMost);
    check("splitShare", config.splitShare, 0, 1);
    check("trafficClass", config.trafficClass, 0, 255);
    check("collnetEnable", config.collnetEnable, 0, 1);
    check("CTAPolicy", config.CTAPolicy, NCCL_CTA_POLICY_DEFAULT,
          NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO);
    check("shrinkShare", config.shrinkShare, 0, 1);
    check("nvlsCTAs", config.nvlsCTAs, 1, kMost);
    check("nChannelsPerNetPeer", config.nChannelsPerNetPeer, 1, kMost);
    check("nvlinkCentricSched", config.nvlinkCentricSched, 0, 1);
    const bool both =
        config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs != NCCL_CONFIG_UNDEF_INT;
    if (both && config.minCTAs > config.maxCTAs)
      fail(ncclInvalidArgument, "config: minCTAs {} is larger than maxCTAs {}", config.minCTAs,
           config.maxCTAs);
    if (config.blocking != NCCL_CONFIG_UNDEF_INT) result.blocking = config.blocking == 1;
    if (config.minCTAs != NCCL_CONFIG_UNDEF_INT) result.min_ctas = config.minCTAs;
    if (config.maxCTAs != NCCL_CONFIG_UNDEF_INT) result.max_ctas = config.maxCTAs;
    if (config.CTAPolicy != NCCL_CONFIG_UNDEF_INT)
      result.copy_engines = (config.CTAPolicy & NCCL_CTA_POLICY_ZERO) != 0;
    if (config.splitShare != NCCL_CONFIG_UNDEF_INT) result.split_share = config.splitShare == 1;
    if (config.netName != nullptr) result.net_name = config.netName;
    if (config.commName != nullptr) result.name = config.commName;
  }
  if (environment.max_ctas > 0) result.max_ctas = environment.max_ctas;
  if (forced == 0 || forced == 1) result.blocking = forced == 1;
  return result;
}

}  // namespace weft
