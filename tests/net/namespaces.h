// Several hosts on one machine: network namespaces, and a hub between them that delays and loses
// packets. The hub is a thread that forwards the packets of the namespaces' TUN devices, so that
// the kernel needs no traffic control. The destructor removes everything.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/handles.h"

namespace weft::test {

struct WireQuality {
  int delay_us = 0;  // each way
  double loss = 0;   // share of packets
};

class Hosts {
 public:
  // With `silent`, every host's first interface has an address that leads nowhere.
  Hosts(int count, const WireQuality& quality, bool silent);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // Why this machine does not allow namespaces. Empty if it does and the hosts are up.
  const std::string& obstacle() const { return obstacle_; }
  // Runs fn in a thread of that host. Processes that it starts are on that host. The thread lives
  // as long as the hosts: processes may ask to die with the thread that started them.
  void run_on(int host, const std::function<void()>& fn);
  // From now on packets from and to this host are lost; -1: no host's.
  void isolate(int host) { isolated_ = host; }
  // Packets that the hub has dropped on purpose.
  long lost() const { return lost_.load(); }

 private:
  void set_up(int host, bool silent);
  void forward(const WireQuality& quality);

  std::vector<Fd> namespaces_;  // per host
  std::vector<Fd> wires_;       // per host: its TUN device
  std::vector<Fd> silent_;
  std::string obstacle_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> isolated_{-1};
  std::atomic<long> lost_{0};
  std::thread hub_;
  std::vector<std::thread> residents_;
};

// The address of a host that all hosts on the hub know.
std::string address_of(int host, bool ipv6);

}  // namespace weft::test
