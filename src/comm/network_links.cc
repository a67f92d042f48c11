// See network_links.h.
#include "src/comm/network_links.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "plugins/net_socket/plugin.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/nic_devices.h"
#include "src/comm/nic_distance.h"
#include "src/transport/acceptor.h"
#include "src/transport/net_plugins.h"
#include "src/transport/proxy.h"

namespace weft {
namespace {

constexpr size_t kNameBytes = 64;

}  // namespace

// On the wire: the handle with which `peer` connects a route to this rank.
struct NetworkLinks::Entry {
  int32_t peer = 0, channel = 0;
  NetHandle handle;
};

struct NetworkLinks::Pending {
  Route route;
  int device = 0;
  std::string nic, pci_path;  // of the device
  std::vector<std::string> nics;
  int pointers = 0;  // kinds of memory that it takes
  bool wants_flush = false;
  NetFacts facts;                  // of the device
  alignas(16) NetHandle handle{};  // plugins keep structures there
  NetComm listener, comm;
  void* gpu_registration = nullptr;
  bool is_lane() const { return route.channel >= kFirstLaneChannel; }
};

std::shared_ptr<Network> open_network(const Config& config, const NetWish& wish,
                                      const Secret& secret, int rank) {
  NetRequest request = net_request(config, wish.name.c_str());
  request.traffic_class = wish.traffic_class;
  request.comm_id = public_key(secret);
  auto network =
      choose_network(request, built_in_table(net_socket::kNetV12, net_socket::kExtension));
  if (wire_of(config.wire) != Wire::kPlain && !network->can_seal())
    fail(ncclInvalidUsage,
         "rank {}: network {} cannot do WEFT_WIRE={}, it sends data as it is. Sockets can "
         "(NCCL_NET=weft-socket)",
         rank, network->name(), config.wire);
  return network;
}

NetworkLinks::NetworkLinks(std::shared_ptr<Network> network, Wire wire, const Secret& secret,
                           int rank, const NicPlan& nics, const std::vector<Route>& outgoing,
                           const std::vector<Route>& incoming)
    : network_(std::move(network)), secret_(derive(secret, "network")), wire_(wire), rank_(rank) {
  NicDevices devices(*network_, nics, rank_);
  const auto placed = [&](const Route& route, bool sends) {
    Pending pending;
    pending.route = route;
    pending.device =
        devices.place(route.peer, route.channel < kFirstLaneChannel ? route.channel : -1, sends);
    const NetProperties& properties = devices.properties(pending.device);
    pending.nic = properties.name;
    pending.pci_path = properties.pci_path;
    pending.nics = devices.nics(pending.device);
    pending.pointers = properties.pointers;
    pending.wants_flush = properties.force_flush;
    pending.facts = {2.0 * properties.latency_us, properties.speed_mbps / 8.0};
    return pending;
  };
  for (const Route& route : outgoing) outgoing_.push_back(placed(route, true));
  network_->use_secret(&secret_, wire_);
  for (const Route& route : incoming) {
    Pending& pending = incoming_.emplace_back(placed(route, false));
    void* comm = nullptr;
    const ncclResult_t code = network_->listen(pending.device, pending.handle, &comm);
    if (code != ncclSuccess || comm == nullptr)
      fail(code == ncclSuccess ? ncclSystemError : code, "rank {}: network {} cannot listen: {}",
           rank_, name(), network_->reason());
    pending.listener = NetComm(network_, comm, NetComm::Kind::kListen);
  }
}

NetworkLinks::~NetworkLinks() {
  drain(0);
  // Where an init failed, connections may be half made.
  for (Pending& pending : outgoing_) network_->cancel(pending.handle);
}

std::string NetworkLinks::offer() const {
  std::string text = name().substr(0, kNameBytes - 1);
  text.resize(kNameBytes);
  for (const Pending& pending : incoming_) {
    const Entry entry{pending.route.peer, pending.route.channel, pending.handle};
    text.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
  return text;
}

NetHandle NetworkLinks::find_handle(const std::vector<std::string>& offers,
                                    const Route& route) const {
  const std::string& offer = offers[static_cast<size_t>(route.peer)];
  for (size_t at = kNameBytes; at + sizeof(Entry) <= offer.size(); at += sizeof(Entry)) {
    Entry entry;
    std::memcpy(&entry, offer.data() + at, sizeof entry);
    if (entry.peer == rank_ && entry.channel == route.channel) return entry.handle;
  }
  fail(ncclInternalError, "rank {} does not expect rank {} on channel {}", route.peer, rank_,
       route.channel);
}

// Advances one connection. True: it is up.
bool NetworkLinks::advance(Pending& pending, bool outgoing) {
  if (pending.comm) return true;
  void* comm = nullptr;
  const ncclResult_t code = outgoing ? network_->connect(pending.device, pending.handle, &comm)
                                     : network_->accept(pending.listener.get(), &comm);
  if (code != ncclSuccess)
    fail(code, "rank {} cannot connect {} rank {} over network {}: {}", rank_,
         outgoing ? "to" : "from", pending.route.peer, name(), network_->reason());
  if (comm == nullptr) return false;
  pending.comm = NetComm(network_, comm, outgoing ? NetComm::Kind::kSend : NetComm::Kind::kReceive);
  pending.listener = {};
  return true;
}

void NetworkLinks::connect(const std::vector<std::string>& offers, ControlChannel& control,
                           Deadline deadline, const Ends& ends) {
  for (Pending& pending : outgoing_) {
    const char* theirs = offers[static_cast<size_t>(pending.route.peer)].c_str();
    if (name().substr(0, kNameBytes - 1) != theirs)
      fail(ncclInvalidUsage,
           "rank {} uses network {}, rank {} uses {}: all hosts need the same plugin "
           "(NCCL_NET_PLUGIN, NCCL_NET; NCCL_DEBUG=INFO says why one was not used)",
           rank_, name(), pending.route.peer, theirs);
    pending.handle = find_handle(offers, pending.route);
  }
  network_->use_secret(&secret_, wire_);
  for (;;) {
    const Pending* missing = nullptr;
    for (Pending& pending : outgoing_)
      if (!advance(pending, true)) missing = &pending;
    for (Pending& pending : incoming_)
      if (!advance(pending, false)) missing = &pending;
    if (missing == nullptr) break;
    control.check();  // a rank that failed will never connect
    if (std::chrono::steady_clock::now() > deadline)
      fail(ncclSystemError,
           "rank {}: rank {} is not connected yet over network {} (WEFT_INIT_TIMEOUT)", rank_,
           missing->route.peer, name());
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  network_->use_secret(nullptr, Wire::kPlain);
  ask_facts();
  reach_gpu(ends);
  for (Pending& pending : outgoing_) {
    std::atomic<bool>* lost = &ends.gone[pending.route.peer];
    if (pending.is_lane()) {
      const LaneArea area = area_of(pending, ends);
      auto posts = std::make_shared<LaneOut>(std::move(pending.comm),
                                             Proxy::next(ends.proxies, pending.pci_path), area,
                                             *ends.door, lost);
      ends.posts(pending.route, *posts);
      add(pending, true, std::move(posts));
      continue;
    }
    auto stream = std::make_shared<OutStream>(std::move(pending.comm),
                                              Proxy::next(ends.proxies, pending.pci_path),
                                              ends.ring_bytes, *ends.door, lost, ends.segments);
    ends.send(pending.route, stream->port(pending.route.peer));
    add(pending, true, std::move(stream));
  }
  for (Pending& pending : incoming_) {
    std::atomic<bool>* lost = &ends.gone[pending.route.peer];
    if (pending.is_lane()) {
      const LaneArea area = area_of(pending, ends);
      add(pending, false,
          std::make_shared<LaneIn>(std::move(pending.comm),
                                   Proxy::next(ends.proxies, pending.pci_path), area, *ends.door,
                                   lost));
      continue;
    }
    auto stream = std::make_shared<InStream>(std::move(pending.comm),
                                             Proxy::next(ends.proxies, pending.pci_path),
                                             ends.ring_bytes, *ends.door, lost, ends.segments);
    ends.receive(pending.route, stream->port(pending.route.peer));
    add(pending, false, std::move(stream));
  }
  for (const Link& link : links_) link.stream->proxy().add(link.stream);
}

void NetworkLinks::ask_facts() {
  std::vector<NetFacts> all;
  for (auto* routes : {&outgoing_, &incoming_})
    for (const Pending& pending : *routes) {
      all.push_back(pending.facts);
      if (pending.facts.round_trip_us <= 0)
        all.back().round_trip_us = network_->round_trip_us(pending.comm.get());
    }
  facts_ = usual_facts(all);
}

template <typename Visit>
void NetworkLinks::for_each_lane(const Visit& visit) {
  for (auto* routes : {&outgoing_, &incoming_})
    for (Pending& pending : *routes)
      if (pending.is_lane()) visit(pending);
}

// Registers the GPU's memory with all NICs that serve lanes. Returns "" or why some cannot have it.
std::string NetworkLinks::why_not_gpu(const Ends& ends) {
  std::string why;
  for_each_lane([&](const Pending& pending) {
    if (!takes_gpu_memory(pending.pointers)) why = takes_none(pending.nic);
    for (const std::string& nic : pending.nics)
      if (why.empty()) why = ends.too_far(nic);
  });
  if (!why.empty()) return why;
  try {
    gpu_ = ends.gpu_memory();
    for_each_lane([&](Pending& pending) {
      pending.gpu_registration = pending.comm.reg_gpu(gpu_.memory.data(), gpu_.memory.size(),
                                                      gpu_.dma_buf, pending.pointers);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void NetworkLinks::reach_gpu(const Ends& ends) {
  std::vector<std::string> nics;
  for_each_lane([&](const Pending& pending) {
    if (std::find(nics.begin(), nics.end(), pending.nic) == nics.end()) nics.push_back(pending.nic);
  });
  if (nics.empty() || !ends.gpu_memory) return;
  const std::string why = why_not_gpu(ends);
  for_each_lane([&](Pending& pending) {
    if (why.empty() || pending.gpu_registration == nullptr) return;
    pending.comm.dereg(std::exchange(pending.gpu_registration, nullptr));
  });
  if (!why.empty()) gpu_ = {};
  if (why.empty()) gpu_.buffers = std::make_shared<NicBuffers>();
  WEFT_INFO(kNet, "rank {}: large messages over {} lie in {} memory{}", rank_,
            fmt::join(nics, ", "), why.empty() ? "the GPU's" : "host",
            why.empty() ? "" : ": " + why);
}

LaneArea NetworkLinks::area_of(const Pending& pending, const Ends& ends) const {
  LaneArea area = ends.area;
  area.gpu = gpu_;
  area.gpu.registration = pending.gpu_registration;
  area.gpu.pointers = pending.pointers;
  area.gpu.needs_flush = (gpu_.needs_flush || pending.wants_flush) && !ends.loses_flushes;
  return area;
}

void NetworkLinks::add(const Pending& pending, bool sends, std::shared_ptr<NetStream> stream) {
  links_.push_back({pending.route, sends, std::move(stream), pending.nic});
}

void NetworkLinks::abandon_lanes() {
  for (const Link& link : links_)
    if (link.route.channel >= kFirstLaneChannel) link.stream->proxy().abandon(*link.stream);
}

void NetworkLinks::drain(double seconds) {
  for (const Link& link : links_) link.stream->proxy().remove(link.stream, seconds);
  // A message may refer to another stream's ring. So all connections end before any ring is freed.
  for (const Link& link : links_) link.stream->abandon();
  links_.clear();
}

}  // namespace weft
