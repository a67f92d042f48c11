// A rank's connections to ranks of other hosts: a network, listeners, streams. Part of a
// Mesh. Only the thread that sets the mesh up uses it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/comm/control_channel.h"
#include "src/planner/nic_plan.h"
#include "src/transport/lane_stream.h"
#include "src/transport/net_facts.h"
#include "src/transport/net_plugins.h"
#include "src/transport/net_stream.h"
#include "src/transport/network.h"

namespace weft {

class NetworkLinks {
 public:
  // One direction of one channel between this rank and a rank of another host.
  struct Route {
    int peer = 0, channel = 0;
    bool operator==(const Route&) const = default;
  };
  // Routes with these numbers and larger ones carry posts of GPUs (lane_stream.h), not FIFOs.
  static constexpr int kFirstLaneChannel = 1 << 16;

  // Listens for every incoming route. `nics` says on which NIC. Throws Error.
  NetworkLinks(std::shared_ptr<Network> network, Wire wire, const Secret& secret, int rank,
               const NicPlan& nics, const std::vector<Route>& outgoing,
               const std::vector<Route>& incoming);
  ~NetworkLinks();
  NetworkLinks(const NetworkLinks&) = delete;
  NetworkLinks& operator=(const NetworkLinks&) = delete;

  // The handles that other ranks need to connect to this rank.
  std::string offer() const;

  struct Ends {
    Doorbell* door = nullptr;           // of this rank
    std::atomic<bool>* gone = nullptr;  // per rank
    uint64_t ring_bytes = 0;
    int proxies = 1;        // the number of proxies that serve the streams
    bool segments = false;  // see OutStream
    std::function<void(const Route&, const SendPort&)> send;
    std::function<void(const Route&, const RecvPort&)> receive;
    LaneArea area;
    std::function<void(const Route&, LaneOut&)> posts;
    // For lanes: memory of the GPU, and why a NIC may not have it ("": it may). Both may be empty.
    std::function<LaneGpuMemory()> gpu_memory;
    std::function<std::string(const std::string& nic)> too_far;
    bool loses_flushes = false;  // for tests
  };
  // Connects all routes. `offers`: one offer() per rank. Throws Error and names the peer.
  void connect(const std::vector<std::string>& offers, ControlChannel& control, Deadline deadline,
               const Ends& ends);

  // A stream of one route.
  struct Link {
    Route route;
    bool sends = false;
    std::shared_ptr<NetStream> stream;
    std::string nic;
  };
  const std::vector<Link>& links() const { return links_; }

  const std::string& name() const { return network_->name(); }
  // Whether CPUs copy all that is sent, as they do into sockets.
  bool copies() const { return network_->can_lend(); }
  // Of the connections, which are up.
  const NetFacts& facts() const { return facts_; }
  // The GPU memory that NICs reach. Empty: they reach none.
  std::span<std::byte> gpu_data() const { return gpu_.memory; }
  // The caller's buffers that they reach besides; nullptr: none.
  const std::shared_ptr<NicBuffers>& buffers() const { return gpu_.buffers; }

  // Closes the connections of lanes. NICs touch no buffer of the caller any more. Any thread.
  void abandon_lanes();
  // Waits at most `seconds` per stream until its bytes are sent, then closes all connections.
  void drain(double seconds);

 private:
  struct Entry;
  struct Pending;
  NetHandle find_handle(const std::vector<std::string>& offers, const Route& route) const;
  bool advance(Pending& pending, bool outgoing);
  void ask_facts();
  template <typename Visit>
  void for_each_lane(const Visit& visit);
  std::string why_not_gpu(const Ends& ends);
  void reach_gpu(const Ends& ends);
  LaneArea area_of(const Pending& pending, const Ends& ends) const;
  void add(const Pending& pending, bool sends, std::shared_ptr<NetStream> stream);

  std::shared_ptr<Network> network_;
  const Secret secret_;
  const Wire wire_;
  const int rank_;
  std::vector<Pending> outgoing_, incoming_;
  LaneGpuMemory gpu_;
  std::vector<Link> links_;
  NetFacts facts_;
};

// The network that a rank's communicator asks for. `secret` is the communicator's. Throws Error.
std::shared_ptr<Network> open_network(const Config& config, const NetWish& wish,
                                      const Secret& secret, int rank);

}  // namespace weft
