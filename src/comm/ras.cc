// See ras.h.
#include "src/comm/ras.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <mutex>
#include <thread>

#include "include/nccl.h"
#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/process_status.h"
#include "src/comm/status.h"
#include "src/transport/socket.h"

namespace weft {
namespace {

constexpr size_t kLongestLine = 4096;
// Clients are served one after the other, so a slow one must not hold the port.
constexpr double kSessionS = 5;

bool is_loopback(const Address& address) {
  if (address.family == 4) return address.bytes[0] == 127;
  Address same = address;
  same.port = same.scope = 0;
  Address loopback;  // ::1
  loopback.family = 6;
  loopback.bytes[15] = 1;
  return same == loopback;
}

std::string status_answer(bool json) {
  std::vector<std::string> processes = ask_processes(0, false);
  processes.insert(processes.begin(), status_json());
  if (json) return status_list(processes) + "\n";
  return fmt::format("NCCL version {}.{}.{} as Weft\n\nProcesses of this host and user: {}\n\n{}",
                     NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, processes.size(), status_text(processes));
}

// Throws Error if the client goes, or is too slow.
void talk(const Fd& client) {
  const Deadline deadline = in_seconds(kSessionS);
  RasSession session(status_answer);
  std::string received;
  std::array<char, 512> part{};
  while (!session.over() && received.size() < kLongestLine) {
    wait_readable(client.get(), deadline, nullptr);
    const ssize_t got = recv(client.get(), part.data(), part.size(), 0);
    if (got <= 0) return;
    received.append(part.data(), static_cast<size_t>(got));
    for (size_t end = 0; !session.over() && (end = received.find('\n')) != std::string::npos;) {
      std::string line = received.substr(0, end);
      received.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      const std::string text = session.answer(line);
      send_all(client.get(), std::as_bytes(std::span(text.data(), text.size())), deadline);
    }
  }
}

void serve(const Fd& listener) {
  for (;;) {
    const Fd client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    try {
      talk(client);
    } catch (const std::exception& error) {
      WEFT_INFO(kRas, "RAS: {}", error.what());
    }
  }
}

}  // namespace

void serve_ras() {
  static std::once_flag once;
  std::call_once(once, [] {
    const Config config = Config::from_environment();
    if (!config.ras_enable) return;
    try {
      const Address address = parse_address(config.ras_addr);
      uint16_t port = address.port;
      int error = 0;
      auto listener = std::make_shared<Fd>(try_listen_tcp(&address, port, error));
      if (!*listener) {
        WEFT_INFO(kRas, "RAS: cannot listen at {}: {}", config.ras_addr, std::strerror(error));
        return;
      }
      WEFT_INFO(kRas, "RAS: listening at {}", config.ras_addr);
      if (!is_loopback(address))
        WEFT_WARN(
            "NCCL_RAS_ADDR={}: whoever reaches this address can read the job's status, without "
            "proof of who it is",
            config.ras_addr);
      std::thread([listener] {
        pthread_setname_np(pthread_self(), "weft-status");
        serve(*listener);
      }).detach();
    } catch (const std::exception& error) {
      WEFT_WARN("NCCL_RAS_ADDR={}: {}", config.ras_addr, error.what());
    }
  });
}

}  // namespace weft
