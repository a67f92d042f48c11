// See mesh.h.
#include "src/comm/mesh.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/base/error.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/comm/nic_distance.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/transport/acceptor.h"
#include "src/transport/event_loop.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

// Arenas of this process's ranks, by communicator and rank. Ranks of the same process find each
// other's arenas here.
class LocalArenas {
 public:
  static LocalArenas& instance() {
    static PerProcess<LocalArenas> arenas;
    return arenas.get();
  }
  void publish(uint64_t key, int rank, const std::shared_ptr<Arena>& arena) {
    std::lock_guard lock(mutex_);
    arenas_[{key, rank}] = arena;
  }
  std::shared_ptr<Arena> find(uint64_t key, int rank) {
    std::lock_guard lock(mutex_);
    const auto it = arenas_.find({key, rank});
    return it == arenas_.end() ? nullptr : it->second.lock();
  }
  void forget(uint64_t key, int rank) {
    std::lock_guard lock(mutex_);
    arenas_.erase({key, rank});
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int>, std::weak_ptr<Arena>> arenas_;
};

// The size of a FIFO's ring buffer. Rings shrink as the number of ranks grows, which bounds a
// communicator's memory. All ranks compute the same size. Even if the user wants less, a ring holds
// four messages with a 64-byte chunk for every rank, or has 32 KiB.
uint64_t ring_size(uint64_t wanted, uint64_t budget, int nranks) {
  const auto n = static_cast<uint64_t>(nranks);
  const uint64_t usual = uint64_t{32} << 10, share = budget / std::max<uint64_t>(n, 8);
  const uint64_t least = std::min(usual, 4 * kFifoAlign * (n + 1));
  return std::max(least, std::min(wanted, std::max(usual, share))) / 64 * 64;
}

constexpr uint64_t kMemoryBudget = 4u << 20, kNetworkBudget = 20u << 20;

int most_channels(int collective) {
  return std::max(kChannels, collective + kChannels - kCollectiveChannels);
}

}  // namespace

bool fits_fifos(const ImportedSchedule& schedule, uint64_t ring_bytes) {
  const uint64_t message =
      fifo_round(64 * static_cast<uint64_t>(schedule.most_step_chunks)) + kFifoAlign;
  return message * static_cast<uint64_t>(schedule.fifo_depth + 1) <= ring_bytes;
}

// Rings are larger if every rank has its own host. Large messages do not pass through rings there,
// and saving a step is worth more than a ring that stays in the cache.
uint64_t Mesh::ring_bytes_for(const Config& config, int nranks, bool own_hosts) {
  return own_hosts ? ring_size(config.net_ring_bytes, kNetworkBudget, nranks)
                   : ring_size(config.ring_bytes, kMemoryBudget, nranks);
}

int Mesh::channels(int source, int destination) const {
  return most_channels(std::max(plan_channels_, imported_.channels(source, destination)));
}

Mesh::Mesh(const Secret& secret, int rank, const MeshPlan& plan, const Config& config)
    : secret_(secret),
      rank_(rank),
      nranks_(static_cast<int>(plan.infos.size()) - plan.cpu_nodes),
      plan_channels_(plan.plan_channels),
      imported_(plan.imported),
      channels_(most_channels(std::max(plan.plan_channels, plan.imported.most_channels()))),
      helped_ranks_(plan.helped_ranks > 0 ? plan.helped_ranks : nranks_),
      area_bytes_(plan.area_bytes),
      net_lanes_(plan.net_lanes),
      lane_words_bytes_(plan.lane_words_bytes),
      infos_(plan.infos) {
  classify();
  ring_bytes_ = ring_bytes_for(config, nranks_, own_hosts_);
  const bool shareable = std::find(link_kinds_.begin(), link_kinds_.end(),
                                   LinkKind::kSharedMemory) != link_kinds_.end();
  arena_ = std::make_shared<Arena>(layout(), shareable);
  server_ = std::make_unique<MemoryServer>(arena_);
  LocalArenas::instance().publish(public_key(secret_), rank_, arena_);
  const size_t ports = peers() * static_cast<size_t>(channels_);
  sends_.resize(ports);
  receives_.resize(ports);
  peer_arenas_.resize(peers());
  links_.resize(peers());
  Acceptor::instance().serve(secret_, rank_,
                             [this](Fd connection, const Purpose& purpose, const Session&) {
                               accept(std::move(connection), purpose);
                             });
}

// If this constructor throws, the destructor runs, because the delegated constructor has finished.
// It closes what that one has opened.
Mesh::Mesh(ControlChannel& control, const Secret& secret, int rank, const MeshPlan& plan,
           const Config& config, const NetWish& wish, Deadline deadline, std::atomic<bool>* gone)
    : Mesh(secret, rank, plan, config) {
  listen(config, wish, plan);
  // All ranks accept connections after this gather.
  const auto offers = control.all_gather(network_ == nullptr ? "" : network_->offer(), deadline);
  connect_host(deadline, control);
  if (network_ != nullptr) connect_network(offers, plan, config, control, deadline, gone);
  const NetFacts mine = network_ == nullptr ? NetFacts() : network_->facts();
  std::vector<NetFacts> all;
  for (const std::string& theirs : control.all_gather(mine.encode(), deadline))
    all.push_back(NetFacts::decode(theirs));
  facts_ = usual_facts(all);
}

void Mesh::connect_host(Deadline deadline, ControlChannel& control) {
  for (const int peer : local_)
    if (link_kinds_[static_cast<size_t>(peer)] != LinkKind::kNetwork)
      connect_local(peer, deadline, control);
}

Mesh::~Mesh() {
  Acceptor::instance().stop(secret_, rank_);
  network_.reset();
  LocalArenas::instance().forget(public_key(secret_), rank_);
}

void Mesh::classify() {
  const PeerInfo& mine = info(rank_);
  for (int peer = 0; peer < static_cast<int>(peers()); peer++) {
    const PeerInfo& theirs = info(peer);
    LinkKind kind = LinkKind::kNetwork;
    if (theirs.host == mine.host) local_.push_back(peer);
    if (theirs.machine == mine.machine) {
      machine_ranks_++;
      if (theirs.core_set == mine.core_set) core_ranks_++;
    }
    if (peer == rank_) {
      kind = LinkKind::kSelf;
    } else if (theirs.process == mine.process) {
      kind = LinkKind::kProcess;
    } else if (theirs.host == mine.host && theirs.shm_disable == 0 && mine.shm_disable == 0) {
      kind = LinkKind::kSharedMemory;
    }
    link_kinds_.push_back(kind);
    for (int other = 0; other < peer; other++)
      own_hosts_ = own_hosts_ && theirs.host != info(other).host;
    one_host_ = one_host_ && theirs.host == info(0).host;
    one_process_ = one_process_ && theirs.process == info(0).process;
  }
}

void Mesh::connect_local(int peer, Deadline deadline, ControlChannel& control) {
  const auto p = static_cast<size_t>(peer);
  const auto position = [&](int rank) {
    return static_cast<int>(std::lower_bound(local_.begin(), local_.end(), rank) - local_.begin());
  };
  Lending lending = Lending::kPointer;
  if (link_kind(peer) == LinkKind::kSelf) {
    peer_arenas_[p] = arena_;
  } else if (link_kind(peer) == LinkKind::kProcess) {
    peer_arenas_[p] = LocalArenas::instance().find(public_key(secret_), peer);
    if (peer_arenas_[p] == nullptr)
      fail(ncclInternalError, "rank {} of this process has no arena", peer);
  } else {
    const auto failed = [&] { return control.broken(); };
    try {
      links_[p] = std::make_unique<MemoryLink>(info(peer).unix_name, secret_, rank_, peer, deadline,
                                               failed);
      peer_arenas_[p] = links_[p]->fetch_arena(layout(), deadline, failed);
    } catch (const Error&) {
      control.check();  // says why it was cancelled
      throw;
    }
    lending = Lending::kSegment;
  }
  for (int channel = 0; channel < channels_; channel++) {
    SendPort& out = sends_[index(peer, channel)];
    out = send_port(*peer_arenas_[p], position(rank_), channel, peer);
    out.lending = lending;
    RecvPort& in = receives_[index(peer, channel)];
    in = receive_port(*arena_, *peer_arenas_[p], position(peer), channel, peer);
    in.segments = links_[p].get();
  }
}

// Runs on the control thread.
void Mesh::accept(Fd connection, const Purpose& purpose) {
  if (purpose.kind == Purpose::kMemory) server_->add(std::move(connection));
}

void Mesh::listen(const Config& config, const NetWish& wish, const MeshPlan& plan) {
  RouteRequest request;
  for (int peer = 0; peer < static_cast<int>(peers()); peer++)
    if (link_kind(peer) == LinkKind::kNetwork && (rank_ < helped_ranks_ || peer < helped_ranks_))
      request.peers.push_back(peer);
  request.nranks = nranks_;
  request.lanes = net_lanes_;
  std::set<uint64_t> hosts;
  for (int rank = 0; rank < nranks_; rank++) hosts.insert(info(rank).host);
  request.lane_streams = weft::lane_streams(nranks_, static_cast<int>(hosts.size()));
  request.to = [this](int peer) { return channels(rank_, peer); };
  request.from = [this](int peer) { return channels(peer, rank_); };
  const auto [outgoing, incoming] = network_routes(request);
  if (outgoing.empty()) return;
  if (net_lanes_ != NetLanes::kNone)
    lane_streams_.resize(static_cast<size_t>(nranks_ * request.lane_streams));
  auto network = plan.network;
  if (network == nullptr) network = open_network(config, wish, secret_, rank_);
  network_ = std::make_unique<NetworkLinks>(std::move(network), wire_of(config.wire), secret_,
                                            rank_, plan.nics, outgoing, incoming);
}

int Mesh::ranks_sharing_gpu() const {
  const PeerInfo& mine = info(rank_);
  return static_cast<int>(
      std::count_if(infos_.begin(), infos_.begin() + nranks_, [&](const PeerInfo& other) {
        return other.process == mine.process &&
               std::equal(std::begin(other.gpu), std::end(other.gpu), std::begin(mine.gpu));
      }));
}

void Mesh::connect_network(const std::vector<std::string>& offers, const MeshPlan& plan,
                           const Config& config, ControlChannel& control, Deadline deadline,
                           std::atomic<bool>* gone) {
  NetworkLinks::Ends ends;
  ends.door = &door();
  ends.gone = gone;
  ends.ring_bytes = ring_bytes_;
  ends.proxies =
      proxy_threads(config.proxy_threads, cuda::available(), info(rank_).cores, core_ranks_);
  ends.segments = !cuda::available();
  ends.send = [this](const NetworkLinks::Route& route, const SendPort& port) {
    registers_ = registers_ || port.lending == Lending::kSegment;
    sends_[index(route.peer, route.channel)] = port;
  };
  ends.receive = [this](const NetworkLinks::Route& route, const RecvPort& port) {
    receives_[index(route.peer, route.channel)] = port;
  };
  if (net_lanes_ != NetLanes::kNone) {
    const auto memory = std::span(arena_->area(), area_bytes_);
    auto* sent = reinterpret_cast<uint64_t*>(memory.data() + lane_words_bytes_) - 1;
    ends.area = {memory, lane_words_bytes_, sent, arena_};
    ends.posts = [this](const NetworkLinks::Route& route, LaneOut& stream) {
      lane_streams_[static_cast<size_t>(route.peer * lane_streams() + route.channel -
                                        NetworkLinks::kFirstLaneChannel)] = &stream;
    };
    ends.gpu_memory = plan.gpu_memory;
    ends.too_far = [&](const std::string& nic) {
      return too_far(plan.nics, rank_, nic, config.net_gdr_level);
    };
    ends.loses_flushes = config.lose_flushes;
  }
  network_->connect(offers, control, deadline, ends);
}

void Mesh::drain(double seconds) {
  if (network_ != nullptr) network_->drain(seconds);
}

}  // namespace weft
