// What a rank's part of a plan runs on, as text for the timeline of WEFT_TRACE: the path, lanes,
// and ports by their kind. Pure functions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "src/comm/network_links.h"
#include "src/schedule/program.h"

namespace weft {

struct TracedPort {
  enum class Kind : uint8_t { kPeer, kHost, kNetwork };
  Kind kind = Kind::kHost;
  std::string nic{};  // of a port to the network; empty: unknown
};
using TracedPortOf = std::function<TracedPort(int peer, int channel, bool sends)>;

// Members of a JSON object: "path", "lanes", and for each kind a list: "to 3 channel 1 over nic0".
// Loads and stores in a peer's memory count as a port each way. Kept for ever, once per text.
const char* traced_means(std::string_view path, const Program& program, const TracedPortOf& port);

// The NIC of the link that carries a channel; empty: no link does.
std::string nic_of(std::span<const NetworkLinks::Link> links, int peer, int channel, bool sends);

}  // namespace weft
