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
  for (int host = 0; host < 2; host++) {
    Signal apart, plugged;
    const pid_t child = start([&, host] {
      enter_own_network();
      apart.give();
      if (!plugged.take()) return 1;
      const std::string end = "end" + std::to_string(host), wire = kWire;
      command("ip link set lo up");
      command("ip link set " + end + " name " + wire);
      command("ip addr add " + wire_address(host) + "/24 dev " + wire);
      command("ip link set " + wire + " up");
      command("tc qdisc add dev " + wire + " root tbf burst 1mb latency 50ms rate " +
              std::to_string(static_cast<long>(gbit * 1000)) + "mbit");
      std::vector<pid_t> children;
      for (int index = 0; index < ranks; index++)
        children.push_back(start([&] { return play(host, index); }));
      return wait_for(children);
    });
    hosts.push_back(child);
    if (!apart.take()) throw std::runtime_error("no network namespaces here");
    command("ip link set end" + std::to_string(host) + " netns " + std::to_string(child));
    plugged.give();
  }
  return wait_for(hosts);
}

}  // namespace weft::perf
