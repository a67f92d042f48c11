// See siblings.h.
#include "src/comm/siblings.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "src/base/error.h"
#include "src/comm/handle.h"

namespace weft {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

std::vector<Sibling> siblings() {
  std::vector<Sibling> found;
  for_each_handle([&](ncclComm& comm) {
    try {
      auto use = std::make_shared<Use>(comm, false);
      StallExchange* exchange = (*use)->stalls();
      if (exchange == nullptr || (*use)->on_gpu()) return;
      found.push_back({comm.caller.load(kRelaxed) >> 1, exchange, std::move(use)});
    } catch (const Error&) {
      // It is not ready yet, or not any more.
    }
  });
  return found;
}

// The library's threads have names, and threads that they start have the same ones. So do a
// program's, if its own name is like ours: then nobody knows.
bool has_one_caller() {
  int others = 0;
  std::error_code failed;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", failed)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    const bool ours = name.starts_with("weft-");
    if (ours && task.path().filename() == std::to_string(getpid())) return false;
    others += ours ? 0 : 1;
  }
  return !failed && others <= 1;
}

uint64_t thread_number() {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t thread = ++threads;
  return thread;
}

void note_caller(ncclComm& comm, bool background) {
  const uint64_t mine = background ? 0 : thread_number() << 1 | 1;
  const uint64_t known = comm.caller.load(kRelaxed);
  if (known == mine || known == 0) return;
  const bool has_called = (known & 1) != 0;
  comm.caller.store(has_called ? 0 : mine, kRelaxed);
}

}  // namespace weft
