// The mesh: this rank's connections to every other rank of its communicator, and its ends of the
// FIFOs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/base/siphash.h"
#include "src/comm/control_channel.h"
#include "src/comm/network_links.h"
#include "src/comm/network_routes.h"
#include "src/comm/peer_info.h"
#include "src/planner/imported_schedules.h"
#include "src/planner/nic_plan.h"
#include "src/transport/arena.h"
#include "src/transport/memory_link.h"
#include "src/transport/net_facts.h"

namespace weft {

enum class LinkKind : uint8_t { kSelf, kProcess, kSharedMemory, kNetwork };

// Whether FIFOs of `ring_bytes` bytes hold all messages that the schedule has in flight at once.
bool fits_fifos(const ImportedSchedule& schedule, uint64_t ring_bytes);

// The peers to connect, and the channels between them. Built-in plans need `plan_channels` between
// any two ranks. `imported` says which pairs need more; it must outlive the mesh. CPU nodes follow
// the ranks in `infos`. A node's entry is a copy of its owner's.
struct MeshPlan {
  std::vector<PeerInfo> infos;
  int cpu_nodes = 0;
  int plan_channels = 0;
  size_t area_bytes = 0;  // see ArenaLayout
  NetLanes net_lanes = NetLanes::kNone;
  size_t lane_words_bytes = 0;  // where there are lanes, areas begin with so many bytes of words
  const ImportedSchedules& imported;
  NicPlan nics{};
  int helped_ranks = 0;  // not 0: the others are helpers, which have nothing to say to each other
  // Memory of the rank's GPU for NICs, see NetworkLinks::Ends. Empty: it has no GPU.
  std::function<LaneGpuMemory()> gpu_memory{};
  std::shared_ptr<Network> network{};  // nullptr: the mesh opens one
};

class Mesh {
 public:
  // Connects to every peer. Blocking; throws Error if a rank is missing. `gone` has an entry per
  // peer, set when a connection to it ends. `wish`: the network to use.
  Mesh(ControlChannel& control, const Secret& secret, int rank, const MeshPlan& plan,
       const Config& config, const NetWish& wish, Deadline deadline, std::atomic<bool>* gone);
  // The mesh of a CPU node. Peers can connect to it from now on. When they exist, connect_host()
  // must follow, before the first use.
  Mesh(const Secret& secret, int rank, const MeshPlan& plan, const Config& config);
  void connect_host(Deadline deadline, ControlChannel& control);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  Doorbell& door() { return arena_->door(); }
  SendPort& sender(int peer, int channel) { return sends_[index(peer, channel)]; }
  RecvPort& receiver(int peer, int channel) { return receives_[index(peer, channel)]; }
  const PeerInfo& info(int peer) const { return infos_[static_cast<size_t>(peer)]; }
  // A rank's board in shared memory; nullptr for ranks of other hosts.
  std::byte* board(int peer) const {
    const auto& arena = peer_arenas_[static_cast<size_t>(peer)];
    return arena == nullptr ? nullptr : arena->board();
  }
  // kCallWords words that all ranks of the host share; nullptr: they share no memory.
  uint64_t* calls() const {
    const auto& arena = peer_arenas_[static_cast<size_t>(local_.front())];
    return arena == nullptr ? nullptr : arena->calls();
  }
  // A rank's area in shared memory; nullptr for ranks of other hosts.
  std::byte* area(int peer) const {
    const auto& arena = peer_arenas_[static_cast<size_t>(peer)];
    return arena == nullptr ? nullptr : arena->area();
  }
  // What GPUs of several hosts run as lanes.
  NetLanes net_lanes() const { return net_lanes_; }
  std::span<std::byte> gpu_data() const {
    return network_ == nullptr ? std::span<std::byte>() : network_->gpu_data();
  }
  // After a stop: the caller may use its buffers in another communicator.
  void keep_nics_from_buffers() const {
    if (nic_buffers() != nullptr) network_->abandon_lanes();
  }
  std::shared_ptr<NicBuffers> nic_buffers() const {
    return network_ == nullptr ? nullptr : network_->buffers();
  }
  // The stream for a GPU's posts to a rank of another host; nullptr for other ranks.
  LaneOut* lane_stream(int peer, int number) const {
    return lane_streams_.empty()
               ? nullptr
               : lane_streams_[static_cast<size_t>(peer * lane_streams() + number)];
  }
  // To a rank of another host; 0: no lanes go there.
  int lane_streams() const { return static_cast<int>(lane_streams_.size()) / nranks_; }
  size_t arena_bytes() const { return arena_->size(); }
  // Keeps the boards and FIFOs of this host alive.
  std::shared_ptr<const void> arenas() const {
    return std::make_shared<std::vector<std::shared_ptr<Arena>>>(peer_arenas_);
  }
  // The link to a rank in another process of this host; nullptr for other ranks.
  MemoryLink* link(int peer) const { return links_[static_cast<size_t>(peer)].get(); }
  LinkKind link_kind(int peer) const { return link_kinds_[static_cast<size_t>(peer)]; }
  uint64_t ring_bytes() const { return ring_bytes_; }
  // Channels for collectives between any two ranks.
  int plan_channels() const { return plan_channels_; }
  // The value of ring_bytes() in a future mesh. `own_hosts`: no two ranks share a host.
  static uint64_t ring_bytes_for(const Config& config, int nranks, bool own_hosts);
  int local_ranks() const { return static_cast<int>(local_.size()); }
  // Ranks and CPU nodes that share this machine's cores, whatever NCCL_HOSTID says.
  int ranks_of_machine() const { return machine_ranks_; }
  // Ranks of this process on this rank's GPU, including this rank.
  int ranks_sharing_gpu() const;
  // The network to other hosts; empty: there is none.
  std::string network_name() const { return network_ == nullptr ? "" : network_->name(); }
  bool network_copies() const { return network_ != nullptr && network_->copies(); }
  // The same on all ranks.
  const NetFacts& network_facts() const { return facts_; }
  std::span<const NetworkLinks::Link> network_links() const {
    if (network_ == nullptr) return {};
    return network_->links();
  }
  bool one_host() const { return one_host_; }
  // Whether the network sends memory from ncclMemAlloc as it lies, and registers it for that.
  bool registers() const { return registers_; }
  bool one_process() const { return one_process_; }

  // Lets outgoing network bytes reach the kernel before the sockets close.
  void drain(double seconds);

 private:
  size_t index(int peer, int channel) const {
    return static_cast<size_t>(peer * channels_ + channel);
  }
  // Channels that messages from one rank to another can take.
  int channels(int source, int destination) const;
  size_t peers() const { return infos_.size(); }
  ArenaLayout layout() const { return {local_ranks(), ring_bytes_, channels_, area_bytes_}; }
  void classify();
  void connect_local(int peer, Deadline deadline, ControlChannel& control);
  void listen(const Config& config, const NetWish& wish, const MeshPlan& plan);
  void connect_network(const std::vector<std::string>& offers, const MeshPlan& plan,
                       const Config& config, ControlChannel& control, Deadline deadline,
                       std::atomic<bool>* gone);
  void accept(Fd connection, const Purpose& purpose);

  const Secret secret_;
  const int rank_, nranks_;  // nranks_: without CPU nodes
  const int plan_channels_;
  const ImportedSchedules& imported_;
  const int channels_;  // the most between any two ranks
  const int helped_ranks_;
  const size_t area_bytes_;
  const NetLanes net_lanes_;
  const size_t lane_words_bytes_;
  uint64_t ring_bytes_ = 0;
  std::vector<PeerInfo> infos_;
  std::vector<LinkKind> link_kinds_;
  std::vector<int> local_;  // ranks and CPU nodes of this host, ascending
  bool one_host_ = true, one_process_ = true, registers_ = false;
  bool own_hosts_ = true;  // no two ranks share a host
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<MemoryServer> server_;
  std::vector<std::shared_ptr<Arena>> peer_arenas_;
  std::vector<std::unique_ptr<MemoryLink>> links_;
  std::vector<SendPort> sends_;
  std::vector<RecvPort> receives_;
  std::unique_ptr<NetworkLinks> network_;  // nullptr: all ranks are on this host
  std::vector<LaneOut*> lane_streams_;     // of network_
  NetFacts facts_;
  int machine_ranks_ = 0;
  int core_ranks_ = 0;  // of machine_ranks_: those that may use the same cores as this rank
};

}  // namespace weft
