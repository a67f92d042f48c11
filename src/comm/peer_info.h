// The first message of every rank to the others: its place, and the settings that all must share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/base/seal.h"
#include "src/comm/control_channel.h"
#include "src/planner/imported_schedules.h"

namespace weft {

// The number of settings that must be equal on all ranks. peer_info.cc has their names.
inline constexpr int kAgreedSettings = 17;

struct PeerInfo {
  uint32_t version = 0;  // of the messages between ranks; must be equal on all ranks
  int32_t pid = 0;
  uint64_t host = 0;     // host_identity()
  uint64_t process = 0;  // random, one per process
  uint64_t ring_bytes = 0, slice_bytes = 0;
  uint64_t settings[kAgreedSettings] = {};  // hashes
  uint64_t compression = 0;                 // hash of what WEFT_COMPRESS says for this communicator
  uint64_t compress_losses = 0;             // WEFT_COMPRESS_LOSSES; decides which calls are refused
  uint64_t schedules = 0;  // fingerprint of the imported schedules; must be equal on all ranks
  uint64_t machine = 0;    // as host, but ignores NCCL_HOSTID
  uint64_t view = 0;       // view_of_host(), on GPUs; 0 in host mode, where links decide nothing
  uint64_t core_set = 0;   // a hash of the cores that this rank's process may use
  int32_t cores = 1;       // the number of those cores
  int32_t shm_disable = 0;
  int32_t p2p_disable = 0;
  int32_t wire = 0;  // Wire
  uint32_t pid_namespace = 0;
  char gpu[16] = {};  // PCI bus id; empty in host mode
  int32_t address_count = 0;
  Address addresses[4];
  char unix_name[40] = {};
  char host_name[64] = {};  // for messages
};

// Empty: the message is of another version of this library, or damaged.
std::optional<PeerInfo> decode_peer_info(const std::string& text);

// Gathers every rank's info, in rank order. `gpu` is this rank's bus id, `communicator` its name,
// which may be empty. Collective. Throws
// Error(ncclInvalidUsage) if ranks contradict each other. All ranks compare with rank 0, so all
// throw the same text.
std::vector<PeerInfo> gather_infos(ControlChannel& control, const Config& config,
                                   const ImportedSchedules& imported, const std::string& gpu,
                                   const std::string& communicator, Deadline deadline);

// Throws Error(ncclInvalidUsage) if ranks set compression differently.
void compare_compression(const std::vector<std::string>& texts);

// Joins a rendezvous in rank 0's process. nullptr if `control` leads there already. Collective.
std::unique_ptr<ControlChannel> join_first_rank(const ControlChannel& control, const Secret& secret,
                                                int rank, const std::vector<PeerInfo>& infos,
                                                Deadline deadline,
                                                ControlChannel::Listener listener,
                                                const Cancelled& cancelled);

}  // namespace weft
