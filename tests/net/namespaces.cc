// See namespaces.h.
#include "tests/net/namespaces.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>

#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

Fd open_tun(const char* name) {
  Fd fd(open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (!fd || ioctl(fd.get(), TUNSETIFF, &request) != 0) return {};
  return fd;
}

bool run_quietly(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

struct Packet {
  Clock::time_point due;
  size_t to = 0;
  std::vector<char> bytes;
};

// The host that a packet is for, by the last byte of its address on the hub's networks. -1 if none.
int destination(const char* packet, size_t size) {
  const auto* p = reinterpret_cast<const unsigned char*>(packet);
  if (size >= 20 && p[0] >> 4 == 4 && p[16] == 10 && p[17] == 77) return p[19] - 1;
  if (size >= 40 && p[0] >> 4 == 6 && p[24] == 0xfd && p[25] == 0x77) return p[39] - 1;
  return -1;
}

}  // namespace

std::string address_of(int host, bool ipv6) {
  return (ipv6 ? "fd77::" : "10.77.0.") + std::to_string(host + 1);
}

Hosts::Hosts(int count, const WireQuality& quality, bool silent) {
  namespaces_.resize(static_cast<size_t>(count));
  wires_.resize(static_cast<size_t>(count));
  for (int h = 0; h < count && obstacle_.empty(); h++)
    std::thread([&, h] { set_up(h, silent); }).join();
  if (obstacle_.empty()) hub_ = std::thread([this, quality] { forward(quality); });
}

Hosts::~Hosts() {
  stopping_ = true;
  stopping_.notify_all();
  if (hub_.joinable()) hub_.join();
  for (std::thread& resident : residents_) resident.join();
}

void Hosts::set_up(int host, bool silent) {
  const auto h = static_cast<size_t>(host);
  if (unshare(CLONE_NEWNET) != 0) {
    obstacle_ = std::string("no network namespaces here: ") + std::strerror(errno);
    return;
  }
  namespaces_[h] = Fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (silent) silent_.push_back(open_tun("eth7"));
  wires_[h] = open_tun("eth0");
  if (!wires_[h] || (silent && !silent_.back())) {
    obstacle_ = std::string("no TUN devices here: ") + std::strerror(errno);
    return;
  }
  bool up = run_quietly("ip link set lo up");
  if (silent)
    up = up && run_quietly("ip addr add 10.78." + std::to_string(host) + ".1/24 dev eth7") &&
         run_quietly("ip link set eth7 up");
  up = up && run_quietly("ip addr add " + address_of(host, false) + "/24 dev eth0") &&
       run_quietly("ip -6 addr add " + address_of(host, true) + "/64 dev eth0 nodad") &&
       run_quietly("ip link set eth0 up");
  // Packets to a silent address go to the hub, which drops them.
  if (silent) up = up && run_quietly("ip route add 10.78.0.0/16 dev eth0");
  if (!up) obstacle_ = "the 'ip' command is missing, or may not set up interfaces";
}

void Hosts::run_on(int host, const std::function<void()>& fn) {
  std::promise<void> done;
  residents_.emplace_back([&, host] {
    if (setns(namespaces_[static_cast<size_t>(host)].get(), CLONE_NEWNET) == 0) fn();
    done.set_value();
    stopping_.wait(false);
  });
  done.get_future().wait();
}

void Hosts::forward(const WireQuality& quality) {
  Random random(mix(test_seed(), 77));
  std::deque<Packet> waiting;
  std::vector<pollfd> fds;
  for (const Fd& wire : wires_) fds.push_back({wire.get(), POLLIN, 0});
  std::array<char, 65536> buffer;
  while (!stopping_) {
    timespec limit{0, 2000000};
    if (!waiting.empty())
      limit.tv_nsec =
          std::max<long>(0, std::min<long>(2000000, (waiting.front().due - Clock::now()).count()));
    ppoll(fds.data(), fds.size(), &limit, nullptr);
    for (size_t from = 0; from < wires_.size(); from++) {
      const ssize_t size = read(wires_[from].get(), buffer.data(), buffer.size());
      if (size <= 0) continue;
      const int to = destination(buffer.data(), static_cast<size_t>(size));
      if (to < 0 || static_cast<size_t>(to) >= wires_.size()) continue;
      const int isolated = isolated_;
      if (isolated == to || isolated == static_cast<int>(from) ||
          static_cast<double>(random.below(1000000)) < quality.loss * 1e6) {
        lost_++;
        continue;
      }
      waiting.push_back({Clock::now() + std::chrono::microseconds(quality.delay_us),
                         static_cast<size_t>(to),
                         std::vector<char>(buffer.data(), buffer.data() + size)});
    }
    while (!waiting.empty() && waiting.front().due <= Clock::now()) {
      const Packet& packet = waiting.front();
      [[maybe_unused]] ssize_t written =
          write(wires_[packet.to].get(), packet.bytes.data(), packet.bytes.size());
      waiting.pop_front();
    }
  }
}

}  // namespace weft::test
