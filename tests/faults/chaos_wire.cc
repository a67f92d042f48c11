// Random runs over verbs. See chaos_wire.h.
#include "tests/faults/chaos_wire.h"

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "tests/rdma/guest.h"

namespace weft::test {
namespace {

class GuestWire : public ChaosWire {
 public:
  GuestWire() : losses_(popen("tc -force -batch - >/dev/null 2>&1", "w")) {
    if (losses_ == nullptr) throw std::runtime_error("the command tc does not start");
  }
  ~GuestWire() override { pclose(losses_); }
  GuestWire(const GuestWire&) = delete;
  GuestWire& operator=(const GuestWire&) = delete;

  void strike(ChaosPlan::Fault fault) override {
    if (fault == ChaosPlan::kWireDark) {
      std::fprintf(losses_, "qdisc add dev a0 root netem loss 100%%\n");
      std::fflush(losses_);
      return;
    }
    wires_.down(0);
    if (fault == ChaosPlan::kWireDown) return;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    wires_.up(0);
  }

 private:
  std::FILE* losses_;
  Wires wires_;
};

}  // namespace

std::unique_ptr<ChaosWire> make_chaos_wire() { return std::make_unique<GuestWire>(); }

std::string verbs_obstacle() { return guest_obstacle(); }

std::map<std::string, std::string> verbs_environment(const ChaosPlan& plan, int rank) {
  // An emulated machine that shares its cores may take ten seconds for an init.
  return verbs_host(rank, "0",
                    {{"NCCL_HOSTID", host_of(plan.hosts, rank)},
                     {"NCCL_IB_RETRY_CNT", "2"},
                     {"WEFT_IB_RECOVERY", "3"},
                     {"WEFT_INIT_TIMEOUT", "30"}});
}

void mend_wires() {
  shell("tc qdisc del dev a0 root");  // fails where nothing was lost
  Wires().up(0);
}

}  // namespace weft::test
