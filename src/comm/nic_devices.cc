// See nic_devices.h.
#include "src/comm/nic_devices.h"

#include <algorithm>

#include "src/base/log.h"

namespace weft {
namespace {

constexpr size_t kMostJoined = 4;

}  // namespace

NicDevices::NicDevices(Network& network, const NicPlan& plan, int rank) : plan_(plan), rank_(rank) {
  for (int device = 0; device < network.devices(); device++)
    all_.push_back({network.properties(device)});
  choose_named(network);
  if (mine_.empty()) choose_fastest(network);
  std::vector<std::string> names;
  for (const int device : mine_) names.push_back(properties(device).name);
  WEFT_INFO(kNet, "rank {} uses NIC {} of network {}", rank_, fmt::join(names, ", "),
            network.name());
}

// Plugins may name the port too, as in mlx5_0:1. Machines do not.
int NicDevices::find(const std::string& name) const {
  const auto named = [&](const std::string& other) {
    for (size_t device = 0; device < all_.size(); device++)
      if (all_[device].properties.name == other) return static_cast<int>(device);
    return -1;
  };
  const int exact = named(name);
  return exact >= 0 ? exact : named(name + ":1");
}

// Makes one device of several, if the plugin can. Connections are then striped over all of them.
bool NicDevices::join(Network& network, std::vector<int>& devices) {
  if (devices.size() < 2 || devices.size() > kMostJoined) return false;
  const int joined = network.merge(devices);
  if (joined < 0) return false;
  while (static_cast<int>(all_.size()) <= joined)
    all_.push_back({network.properties(static_cast<int>(all_.size()))});
  auto& parts = all_[static_cast<size_t>(joined)].parts;
  parts.clear();
  for (const int device : devices) parts.push_back(properties(device).name);
  devices = {joined};
  return true;
}

std::vector<std::string> NicDevices::nics(int device) const {
  const Device& d = all_[static_cast<size_t>(device)];
  return d.parts.empty() ? std::vector{d.properties.name} : d.parts;
}

void NicDevices::choose_named(Network& network) {
  std::vector<std::string> missing;
  const auto rank = static_cast<size_t>(rank_);
  if (rank >= plan_.of_rank.size()) return;
  for (const std::string& name : plan_.of_rank[rank]) {
    const int device = find(name);
    if (device >= 0) {
      mine_.push_back(device);
    } else {
      missing.push_back(name);
    }
  }
  join(network, mine_);
  if (!missing.empty())
    WEFT_INFO(kNet, "rank {}: network {} has no device {}, which the machine names{}", rank_,
              network.name(), fmt::join(missing, ", "), mine_.empty() ? ": the fastest serve" : "");
}

// Up to kMostJoined NICs are joined. With more, each belongs to some GPU. A joined NIC of an
// earlier communicator is the fastest.
void NicDevices::choose_fastest(Network& network) {
  for (size_t device = 0; device < all_.size(); device++) mine_.push_back(static_cast<int>(device));
  if (join(network, mine_)) return;
  int fastest = 0;
  for (const int device : mine_) fastest = std::max(fastest, properties(device).speed_mbps);
  std::erase_if(mine_, [&](int device) { return properties(device).speed_mbps < fastest; });
}

int NicDevices::place(int peer, int channel, bool sends) {
  for (const NicPlan::Route& route : plan_.routes) {
    if (!route.serves(rank_, peer, channel, sends)) continue;
    const std::string& name = sends ? route.sends : route.receives;
    const auto& usual = plan_.of_rank[static_cast<size_t>(rank_)];
    // All its devices serve, but where only some reach the peer.
    if (route.channel >= 0 && !usual.empty() && usual.front() == name) break;
    const int named = find(name);
    if (named >= 0) return named;
  }
  const auto load = [&](int device) {
    const Device& d = all_[static_cast<size_t>(device)];
    return (d.routes + 1.0) / std::max(1, d.properties.speed_mbps);
  };
  const int least = *std::min_element(mine_.begin(), mine_.end(),
                                      [&](int a, int b) { return load(a) < load(b); });
  all_[static_cast<size_t>(least)].routes++;
  return least;
}

}  // namespace weft
