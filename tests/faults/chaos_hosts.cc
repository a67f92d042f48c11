// See chaos_hosts.h.
#include "tests/faults/chaos_hosts.h"

#include <cstdlib>
#include <stdexcept>

namespace weft::test {

ChaosHosts::ChaosHosts(const ChaosPlan& plan, Stage& stage)
    : plan_(plan), stage_(stage), hosts_(plan.hosts == kTwoHosts ? 2 : plan.ranks, {}, false) {
  if (!hosts_.obstacle().empty()) throw std::runtime_error(hosts_.obstacle());
  if (plan.fault < ChaosPlan::kWireFlaps) return;
  watcher_ = std::thread([this] {
    while (!over_ && !stage_.has(Stage::kFault)) pause_ms(1);
    if (!over_) strike();
  });
}

ChaosHosts::~ChaosHosts() {
  over_ = true;
  if (watcher_.joinable()) watcher_.join();
}

int ChaosHosts::host(int rank) const { return plan_.hosts == kTwoHosts ? rank % 2 : rank; }

void ChaosHosts::place(int rank, const std::function<void()>& start) {
  hosts_.run_on(host(rank), start);
}

void ChaosHosts::strike() {
  const int struck = host(plan_.victim);
  if (plan_.fault == ChaosPlan::kWireDown) {
    hosts_.run_on(struck, [] {
      if (std::system("ip link set eth0 down") != 0) std::abort();
    });
    return;
  }
  hosts_.isolate(struck);
  if (plan_.fault != ChaosPlan::kWireFlaps) return;
  pause_ms(1000);
  hosts_.isolate(-1);
}

std::string namespaces_obstacle() { return Hosts(1, {}, false).obstacle(); }

std::map<std::string, std::string> namespace_environment(const ChaosPlan& plan, int rank) {
  std::map<std::string, std::string> environment = {{"NCCL_HOSTID", host_of(plan.hosts, rank)},
                                                    {"NCCL_IB_DISABLE", "1"},
                                                    {"WEFT_WIRE", plan.wire},
                                                    {"WEFT_PEER_TIMEOUT", "4"}};
  if (!plan.harmless()) environment["WEFT_INIT_TIMEOUT"] = "6";
  return environment;
}

}  // namespace weft::test
