// See guest.h.
#include "tests/rdma/guest.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace weft::test {

std::string guest_obstacle() {
  if (access("/sys/class/infiniband/weft_a0", F_OK) == 0) return "";
  return "no soft-RoCE devices here: tests/rdma/vm makes a guest with them";
}

Environment verbs_host(int rank, const std::string& wires, const Environment& settings) {
  Environment all = separate_hosts(rank);
  const std::string side = rank % 2 == 0 ? "weft_a" : "weft_b";
  std::string devices = "=";
  for (const char wire : wires) devices += (devices.size() > 1 ? "," : "") + side + wire;
  all["NCCL_IB_HCA"] = devices;
  all["NCCL_NET_PLUGIN"] = WEFT_VERBS_PLUGIN;
  all["NCCL_NET"] = "weft-verbs";
  all["NCCL_IB_TIMEOUT"] = "17";  // 0.5 s: an emulated machine is slow
  for (const auto& [name, value] : settings) all[name] = value;
  return all;
}

bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

uint64_t bytes_over(const std::string& interface) {
  uint64_t bytes = 0;
  std::ifstream("/sys/class/net/" + interface + "/statistics/tx_bytes") >> bytes;
  return bytes;
}

Wires::Wires() : commands_(popen("ip -force -batch - >/dev/null 2>&1", "w")) {}

Wires::~Wires() { pclose(commands_); }

void Wires::down(int wire) {
  std::fprintf(commands_, "link set a%d down\n", wire);
  std::fflush(commands_);
}

void Wires::up(int wire) {
  // The kernel has removed the routes over the link.
  std::fprintf(commands_,
               "link set a%d up\n"
               "route replace 10.8%d.0.2/32 dev a%d src 10.8%d.0.1 table 10%d\n"
               "route replace 10.8%d.0.1/32 dev b%d src 10.8%d.0.2 table 11%d\n",
               wire, wire, wire, wire, wire, wire, wire, wire, wire);
  std::fflush(commands_);
}

}  // namespace weft::test
