// Random runs over verbs. See chaos_wire.h.
#include "tests/faults/chaos_wire.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "tests/rdma/guest.h"

namespace weft::test {
namespace {

std::string device_of(int rank) { return rank % 2 == 0 ? "weft_a0" : "weft_b0"; }

class GuestWire : public ChaosWire {
 public:
  explicit GuestWire(int rank)
      : device_(device_of(rank)), devices_(popen("rdma -force -batch - >/dev/null 2>&1", "w")) {
    if (devices_ == nullptr) throw std::runtime_error("the command rdma does not start");
  }
  ~GuestWire() override { pclose(devices_); }
  GuestWire(const GuestWire&) = delete;
  GuestWire& operator=(const GuestWire&) = delete;

  void strike(ChaosPlan::Fault fault) override {
    if (fault == ChaosPlan::kDeviceLost) {
      std::fprintf(devices_, "link delete %s\n", device_.c_str());
      std::fflush(devices_);
      return;
    }
    wires_.down(0);
    if (fault == ChaosPlan::kWireDown) return;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    wires_.up(0);
  }

 private:
  std::string device_;
  std::FILE* devices_;
  Wires wires_;
};

}  // namespace

std::unique_ptr<ChaosWire> make_chaos_wire(int rank) { return std::make_unique<GuestWire>(rank); }

std::string verbs_obstacle() { return guest_obstacle(); }

std::map<std::string, std::string> verbs_environment(const ChaosPlan& plan, int rank) {
  // An emulated machine is slow: a second and more for an init, so the limit is longer than usual.
  return verbs_host(rank, "0",
                    {{"NCCL_HOSTID", host_of(plan.hosts, rank)},
                     {"NCCL_IB_RETRY_CNT", "2"},
                     {"WEFT_IB_RECOVERY", "3"},
                     {"WEFT_INIT_TIMEOUT", "8"}});
}

void mend_wires() {
  Wires().up(0);
  for (const std::string side : {"a0", "b0"})
    if (access(("/sys/class/infiniband/weft_" + side).c_str(), F_OK) != 0 &&
        !shell("rdma link add weft_" + side + " type rxe netdev " + side))
      throw std::runtime_error("weft_" + side + " cannot be made again");
}

}  // namespace weft::test
