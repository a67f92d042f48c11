// Hosts of our own on one machine: network namespaces, and a hub between them that delays and loses
// packets. The hub is a thread that forwards what the namespaces' TUN devices give it, so that no
// traffic control of the kernel is needed. Everything goes away with the objects.
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
  // `silent`: every host gets another interface first, whose address leads nowhere.
  Hosts(int count, const WireQuality& quality, bool silent);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // Why this machine does not let us make namespaces; empty: it does, and the hosts are up.
  const std::string& obstacle() const { return obstacle_; }
  // Runs fn in a thread of that host; processes it starts are of that host. The thread stays as
  // long as the hosts do: processes may want to die with the thread that started them.
  void run_on(int host, const std::function<void()>& fn);
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
  std::atomic<long> lost_{0};
  std::thread hub_;
  std::vector<std::thread> residents_;
};

// Addresses of a host, as everybody on the hub knows it.
std::string address_of(int host, bool ipv6);

}  // namespace weft::test
