// Which devices of a network a rank uses, and which one serves which route: those that the plan
// names, by default the NICs nearest to the rank's GPU.
#pragma once

#include <string>
#include <vector>

#include "src/planner/nic_plan.h"
#include "src/transport/network.h"

namespace weft {

class NicDevices {
 public:
  NicDevices(Network& network, const NicPlan& plan, int rank);

  // The device for one direction of a channel to a peer. Channel -1: of any channel. Routes that no
  // schedule places go to the rank's devices by their rates.
  int place(int peer, int channel, bool sends);
  const NetProperties& properties(int device) const {
    return all_[static_cast<size_t>(device)].properties;
  }
  // The NICs that a device is made of.
  std::vector<std::string> nics(int device) const;

 private:
  struct Device {
    NetProperties properties;
    int routes = 0;                    // placed so far
    std::vector<std::string> parts{};  // of a device that join() made
  };
  int find(const std::string& name) const;
  void choose_named(Network& network);
  void choose_fastest(Network& network);
  bool join(Network& network, std::vector<int>& devices);

  const NicPlan& plan_;
  const int rank_;
  std::vector<Device> all_;
  std::vector<int> mine_;
};

}  // namespace weft
