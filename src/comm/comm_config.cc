// See comm_config.h.
#include "src/comm/comm_config.h"

#include <algorithm>
#include <climits>
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
  if (version < NCCL_VERSION(2, 29, 0)) return offsetof(ncclConfig_t, graphUsageMode);
  if (version < NCCL_VERSION(2, 30, 0)) return offsetof(ncclConfig_t, maxP2pPeers);
  if (version < NCCL_VERSION(2, 30, 5)) return offsetof(ncclConfig_t, graphStreamOrdering);
  return sizeof(ncclConfig_t);
}

// The user's struct, as long as its version has it. Fields that its version lacks are undefined.
ncclConfig_t read_config(const ncclConfig_t& user) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (user.magic != config.magic)
    fail(ncclInvalidArgument, "config: magic is {:#x}; initialize it with NCCL_CONFIG_INITIALIZER",
         user.magic);
  if (user.size < offsetof(ncclConfig_t, cgaClusterSize))
    fail(ncclInvalidArgument, "config: size is {}, too small for any version", user.size);
  // Older structs are shorter, with padding where newer fields are.
  std::memcpy(&config, &user, std::min({user.size, sizeof config, known_bytes(user.version)}));
  return config;
}

void check_all(const ncclConfig_t& config) {
  constexpr int kMost = INT_MAX;
  check("blocking", config.blocking, 0, 1);
  check("cgaClusterSize", config.cgaClusterSize, 0, kMost);
  check("minCTAs", config.minCTAs, 1, kMost);
  check("maxCTAs", config.maxCTAs, 1, kMost);
  check("splitShare", config.splitShare, 0, 1);
  check("trafficClass", config.trafficClass, 0, 255);
  check("collnetEnable", config.collnetEnable, 0, 1);
  check("CTAPolicy", config.CTAPolicy, NCCL_CTA_POLICY_DEFAULT,
        NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO);
  check("shrinkShare", config.shrinkShare, 0, 1);
  check("nvlsCTAs", config.nvlsCTAs, 1, kMost);
  check("nChannelsPerNetPeer", config.nChannelsPerNetPeer, 1, 64);
  check("nvlinkCentricSched", config.nvlinkCentricSched, 0, 1);
  check("graphUsageMode", config.graphUsageMode, 0, 2);
  check("numRmaCtx", config.numRmaCtx, 0, kMost);
  check("maxP2pPeers", config.maxP2pPeers, 1, kMost);
  check("graphStreamOrdering", config.graphStreamOrdering, 0, 1);
  const bool both =
      config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (both && config.minCTAs > config.maxCTAs)
    fail(ncclInvalidArgument, "config: minCTAs {} is larger than maxCTAs {}", config.minCTAs,
         config.maxCTAs);
}

// What was set and does nothing here.
std::vector<EnvironmentNote> notes_of(const ncclConfig_t& config) {
  struct Idle {
    const char* name;
    int value;
    const char* why;
    bool asks = false;  // IdleVariable
  };
  const Idle all[] = {
      {"cgaClusterSize", config.cgaClusterSize, "thread blocks are not clustered"},
      {"minCTAs", config.minCTAs, "thread blocks are chosen by size, up to maxCTAs", true},
      {"collnetEnable", config.collnetEnable, "reductions in the network are not used"},
      {"nvlsCTAs", config.nvlsCTAs, "NVLink SHARP is not used"},
      {"nChannelsPerNetPeer", config.nChannelsPerNetPeer, "plans have their own channels", true},
      {"nvlinkCentricSched", config.nvlinkCentricSched, "plans follow the machine's links"},
      {"graphUsageMode", config.graphUsageMode, "NCCL_GRAPH_MIXING_SUPPORT says it for all"},
      {"numRmaCtx", config.numRmaCtx, "one-sided calls need no contexts"},
      {"maxP2pPeers", config.maxP2pPeers, "all peers are connected at init"},
      {"graphStreamOrdering", config.graphStreamOrdering, "calls in graphs keep their order"},
  };
  std::vector<EnvironmentNote> notes;
  for (const Idle& idle : all)
    if (idle.value != NCCL_CONFIG_UNDEF_INT)
      notes.push_back(
          {fmt::format("{}={} has no effect: {}", idle.name, idle.value, idle.why), idle.asks});
  return notes;
}

CommConfig from_user(const ncclConfig_t& config) {
  constexpr int kUndefined = NCCL_CONFIG_UNDEF_INT;
  CommConfig result;
  result.blocking = config.blocking != 0;
  if (config.maxCTAs != kUndefined) result.max_ctas = config.maxCTAs;
  result.copy_engines =
      config.CTAPolicy != kUndefined && (config.CTAPolicy & NCCL_CTA_POLICY_ZERO) != 0;
  result.split_share = config.splitShare == 1;
  result.shrink_share = config.shrinkShare == 1;
  if (config.netName != nullptr) result.net.name = config.netName;
  if (config.trafficClass != kUndefined) result.net.traffic_class = config.trafficClass;
  if (config.commName != nullptr) result.name = config.commName;
  result.notes = notes_of(config);
  return result;
}

}  // namespace

CommConfig CommConfig::from(const ncclConfig_t* user, const CommConfig* parent) {
  const Config environment = Config::from_environment();
  environment.require_valid();
  CommConfig result;
  if (user != nullptr) {
    const ncclConfig_t config = read_config(*user);
    check_all(config);
    result = from_user(config);
  } else if (parent != nullptr) {
    result = *parent;
    result.name.clear();
    result.notes.clear();
  }
  result.shares_blocks = false;
  if (environment.max_ctas > 0) result.max_ctas = environment.max_ctas;
  if (const int forced = environment.comm_blocking; forced == 0 || forced == 1)
    result.blocking = forced == 1;
  return result;
}

}  // namespace weft
