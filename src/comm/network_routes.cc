// See network_routes.h.
#include "src/comm/network_routes.h"

#include "src/transport/arena.h"

namespace weft {
namespace {

// Streams that are busy at the same time follow each other, so they get different proxies.
void add_fifos(const RouteRequest& request, NetworkRoutes& routes) {
  for (const bool collective : {true, false})
    for (const int peer : request.peers) {
      const auto add = [&](std::vector<NetworkLinks::Route>& to, int count) {
        for (int c = 0; c < count; c++)
          if ((c != kPointToPointChannel) == collective) to.push_back({peer, c});
      };
      add(routes.outgoing, request.to(peer));
      add(routes.incoming, request.from(peer));
    }
}

void add_lanes(const RouteRequest& request, NetworkRoutes& routes) {
  for (int s = 0; s < request.lane_streams; s++)
    for (const int peer : request.peers) {
      if (peer >= request.nranks) continue;
      routes.outgoing.push_back({peer, NetworkLinks::kFirstLaneChannel + s});
      routes.incoming.push_back({peer, NetworkLinks::kFirstLaneChannel + s});
    }
}

}  // namespace

int lane_streams(int nranks, int hosts) {
  constexpr int kManyRanks = 33, kManyHosts = 5;  // that is four others, one per proxy
  return nranks >= kManyRanks && hosts >= kManyHosts ? 1 : kLaneStreams;
}

// FIFOs come first: they get the proxies and NICs that they have without lanes.
NetworkRoutes network_routes(const RouteRequest& request) {
  NetworkRoutes routes;
  if (request.lanes != NetLanes::kAll) add_fifos(request, routes);
  if (request.lanes != NetLanes::kNone) add_lanes(request, routes);
  return routes;
}

}  // namespace weft
