// See wire.h.
#include "perf/network/wire.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace weft::perf {
namespace {

void command(const std::string& text) {
  if (std::system((text + " >/dev/null 2>&1").c_str()) != 0)
    throw std::runtime_error("cannot set up the wire: '" + text + "' failed");
}

void enter_own_network() {
  if (unshare(CLONE_NEWNET) != 0)
    throw std::runtime_error(std::string("no network namespaces here: ") + std::strerror(errno));
}

// Runs fn in a child process. The child's exceptions become its exit status.
pid_t start(const std::function<int()>& fn) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  int result = 1;
  try {
    result = fn();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wire_perf: %s\n", error.what());
  }
  std::_Exit(result);
}

int wait_for(const std::vector<pid_t>& children) {
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

// A byte through a pipe.
struct Signal {
  int ends[2] = {-1, -1};
  Signal() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipes");
  }
  void give() const {
    if (write(ends[1], "x", 1) != 1) std::_Exit(1);
  }
  // False if the giver has died.
  bool take() {
    close(ends[1]);
    char got = 0;
    return read(ends[0], &got, 1) == 1;
  }
};

void limit(const std::string& interface, double gbit) {
  command("tc qdisc add dev " + interface + " root tbf burst 1mb latency 50ms rate " +
          std::to_string(static_cast<long>(gbit * 1000)) + "mbit");
}

// A process in a namespace of its own, which has the interface end<host> from then on.
pid_t start_host(int host, double gbit, int ranks, const std::function<int(int, int)>& play) {
  Signal apart, plugged;
  const std::string end = "end" + std::to_string(host);
  const pid_t child = start([&] {
    enter_own_network();
    apart.give();
    if (!plugged.take()) return 1;
    const std::string wire = kWire;
    command("ip link set lo up");
    command("ip link set " + end + " name " + wire);
    command("ip addr add " + wire_address(host) + "/24 dev " + wire);
    command("ip link set " + wire + " up");
    limit(wire, gbit);
    std::vector<pid_t> children;
    for (int index = 0; index < ranks; index++)
      children.push_back(start([&] { return play(host, index); }));
    return wait_for(children);
  });
  if (!apart.take()) throw std::runtime_error("no network namespaces here");
  command("ip link set " + end + " netns " + std::to_string(child));
  plugged.give();
  return child;
}

}  // namespace

std::string wire_address(int host) { return "10.99.0." + std::to_string(host + 1); }

WireBytes wire_bytes() {
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(std::string(kWire) + ":");
    if (at == std::string::npos) continue;
    std::istringstream numbers(line.substr(line.find(':') + 1));
    WireBytes bytes;
    uint64_t skipped = 0;
    numbers >> bytes.received;
    for (int i = 0; i < 7; i++) numbers >> skipped;
    numbers >> bytes.sent;
    return bytes;
  }
  return {};
}

int run_on_wire(double gbit, int ranks, const std::function<int(int, int)>& play) {
  enter_own_network();
  command("ip link add end0 type veth peer name end1");
  std::vector<pid_t> hosts;
  for (int host = 0; host < 2; host++) hosts.push_back(start_host(host, gbit, ranks, play));
  return wait_for(hosts);
}

int run_on_switch(int count, double gbit, const std::function<int(int)>& play) {
  enter_own_network();
  command("ip link add switch type bridge");
  command("ip link set switch up");
  std::vector<pid_t> hosts;
  for (int host = 0; host < count; host++) {
    const std::string number = std::to_string(host), port = "port" + number;
    command("ip link add end" + number + " type veth peer name " + port);
    command("ip link set " + port + " master switch");
    command("ip link set " + port + " up");
    limit(port, gbit);
    hosts.push_back(start_host(host, gbit, 1, [&](int h, int) { return play(h); }));
  }
  return wait_for(hosts);
}

}  // namespace weft::perf
