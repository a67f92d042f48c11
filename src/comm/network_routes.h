// Which streams a rank opens to ranks of other hosts. Pure functions.
#pragma once

#include <functional>
#include <vector>

#include "src/comm/network_links.h"
#include "src/transport/lane_post.h"

namespace weft {

// What GPUs of several hosts run as lanes (WEFT_NET_LANES). All else goes through FIFOs in pinned
// host memory. The same on all ranks.
enum class NetLanes : uint8_t {
  kNone,
  kCoded,  // compressed calls: FIFOs carry no codecs, and carry all else faster
  kAll,
};

struct RouteRequest {
  std::vector<int> peers;  // of other hosts, that this rank talks to; CPU nodes too
  int nranks = 0;          // CPU nodes are numbered from here on
  NetLanes lanes = NetLanes::kNone;
  int lane_streams = kLaneStreams;  // to a peer
  // Channels of FIFOs to a peer and from it.
  std::function<int(int peer)> to, from;
};

struct NetworkRoutes {
  std::vector<NetworkLinks::Route> outgoing, incoming;
};

// Streams of lanes between two ranks. Where ranks of many hosts talk to each other at the same
// time, they keep all proxies busy with one each, at half the descriptors and pinned memory.
int lane_streams(int nranks, int hosts);

// Streams go to proxies round robin, in this order.
NetworkRoutes network_routes(const RouteRequest& request);

}  // namespace weft
