// What ranks tell each other first: where they are, and the settings on which they must agree.
#pragma once

#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/comm/control_channel.h"
#include "src/planner/imported_schedules.h"

namespace weft {

// Settings that all ranks must have alike, as hashes; see peer_info.cc for their names.
inline constexpr int kAgreedSettings = 9;

struct PeerInfo {
  uint32_t version = 0;  // of this library; all ranks must agree
  int32_t pid = 0;
  uint64_t host = 0;     // host_identity()
  uint64_t process = 0;  // random, one per process
  uint64_t ring_bytes = 0, slice_bytes = 0;
  uint64_t settings[kAgreedSettings] = {};
  uint64_t schedules = 0;  // fingerprint of the imported ones: ranks must have the same
  uint64_t machine = 0;    // like host, but what NCCL_HOSTID says does not count
  uint64_t core_set = 0;   // a hash of the cores that this rank's process may use
  int32_t cores = 1;       // how many these are
  int32_t shm_disable = 0;
  int32_t p2p_disable = 0;
  char gpu[16] = {};  // PCI bus id; empty in host mode
  int32_t address_count = 0;
  Address addresses[4];
  char unix_name[40] = {};
};

// Every rank's, in rank order; `gpu` is this one's bus id. Collective. Throws
// Error(ncclInvalidUsage) where ranks contradict each other: the same text on all of them, since
// all compare with rank 0.
std::vector<PeerInfo> gather_infos(ControlChannel& control, const Config& config,
                                   const ImportedSchedules& imported, const std::string& gpu,
                                   Deadline deadline);

}  // namespace weft
