// Reads the debug variables once, formats lines as NCCL does, and writes each with one write().
#include "src/base/log.h"

#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log_time.h"
#include "src/base/regular_file.h"

namespace weft::log {
namespace {

constexpr std::array<std::pair<std::string_view, uint32_t>, 19> kNames = {{
    {"INIT", kInit},
    {"COLL", kColl},
    {"P2P", kP2p},
    {"SHM", kShm},
    {"NET", kNet},
    {"GRAPH", kGraph},
    {"TUNING", kTuning},
    {"ENV", kEnv},
    {"ALLOC", kAlloc},
    {"CALL", kCall},
    {"PROXY", kProxy},
    {"NVLS", kNvls},
    {"REG", kReg},
    {"BOOTSTRAP", kBootstrap},
    {"PROFILE", kProfile},
    {"RAS", kRas},
    {"ALL", kAll},
    {"DESTROY", kDestroy},
    {"ALLOC_HOST", kAllocHost},
}};

std::string hostname() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::string host(name.data());
  return host.substr(0, host.find('.'));
}

Level parse_level(const std::string& text) {
  if (strcasecmp(text.c_str(), "VERSION") == 0) return Level::kVersion;
  if (strcasecmp(text.c_str(), "WARN") == 0) return Level::kWarn;
  if (strcasecmp(text.c_str(), "INFO") == 0) return Level::kInfo;
  if (strcasecmp(text.c_str(), "ABORT") == 0) return Level::kAbort;
  if (strcasecmp(text.c_str(), "TRACE") == 0) return Level::kTrace;
  return Level::kNone;
}

// "INIT,NET" or "^COLL". The second form is everything except the named subsystems.
uint32_t parse_subsystems(std::string text) {
  if (text.empty()) return kInit | kBootstrap | kEnv;
  bool invert = text[0] == '^';
  if (invert) text.erase(0, 1);
  uint32_t mask = 0;
  size_t begin = 0;
  while (begin <= text.size()) {
    size_t end = text.find(',', begin);
    if (end == std::string::npos) end = text.size();
    std::string word = text.substr(begin, end - begin);
    for (auto& [name, bit] : kNames)
      if (strcasecmp(word.c_str(), std::string(name).c_str()) == 0) mask |= bit;
    begin = end + 1;
  }
  return invert ? ~mask : mask;
}

// NCCL_DEBUG_FILE with %h and %p replaced. The log goes to stdout if the file cannot be opened, and
// `why` says why.
int open_file(const std::string& pattern, std::string& why) {
  if (pattern.empty()) return STDOUT_FILENO;
  const std::string path = expand_path(pattern);
  if (path == "stdout" || path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "stderr" || path == "/dev/stderr") return STDERR_FILENO;
  try {
    return open_to_write(path).release();
  } catch (const Error& error) {
    why = error.what();
    return STDOUT_FILENO;
  }
}

std::atomic<bool> loaded{false};
std::atomic<uint32_t> current_subsystems{0};
std::atomic<int> current_fd{STDOUT_FILENO};
std::atomic<uint32_t> stamped{0};
std::string stamp_format;  // with the mutex
std::mutex load_mutex;
thread_local int thread_device = -1;
std::atomic<int> first_device{-1};

int shown_device() {
  return thread_device >= 0 ? thread_device : first_device.load(std::memory_order_relaxed);
}

void load() {
  if (loaded.load(std::memory_order_acquire)) return;
  std::lock_guard lock(load_mutex);
  if (loaded.load(std::memory_order_relaxed)) return;
  const Config config = Config::from_environment();
  internal::level = static_cast<int>(parse_level(config.debug));
  current_subsystems = parse_subsystems(config.debug_subsys);
  std::string why;
  current_fd = open_file(config.debug_file, why);
  if (!why.empty() && internal::level != static_cast<int>(Level::kNone)) {
    const std::string line = fmt::format(
        "{}:{} NCCL WARN NCCL_DEBUG_FILE: {}; the log is on stdout\n", hostname(), getpid(), why);
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }
  stamped = stamped_levels(config.debug_timestamp_levels);
  stamp_format = config.debug_timestamp_format;
  loaded.store(true, std::memory_order_release);
}

}  // namespace

std::string expand_path(const std::string& pattern) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); i++) {
    if (pattern[i] == '%' && i + 1 < pattern.size()) {
      char c = pattern[++i];
      if (c == 'h') {
        path += hostname();
      } else if (c == 'p') {
        path += std::to_string(getpid());
      } else {
        path += (c == '%') ? "%" : std::string("%") + c;
      }
    } else {
      path += pattern[i];
    }
  }
  return path;
}

void reset() {
  std::lock_guard lock(load_mutex);
  int fd = current_fd.exchange(STDOUT_FILENO);
  if (fd > STDERR_FILENO) close(fd);
  loaded = false;
  internal::level = std::numeric_limits<int>::max();
}

void set_thread_device(int device) {
  if (thread_device == device) return;
  thread_device = device;
  int none = -1;
  first_device.compare_exchange_strong(none, device, std::memory_order_relaxed);
}

bool internal::enabled(Level level, Subsystem subsystem) {
  load();
  if (static_cast<int>(level) > internal::level.load(std::memory_order_relaxed)) return false;
  if (level < Level::kInfo) return true;
  return (current_subsystems.load(std::memory_order_relaxed) & subsystem) != 0;
}

namespace {

// The time, for levels that want it.
std::string time_of(Level level) {
  if ((stamped.load(std::memory_order_relaxed) >> static_cast<int>(level) & 1) == 0) return "";
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::lock_guard lock(load_mutex);
  return stamp(stamp_format, now);
}

// One write per line keeps lines of many threads and processes whole.
void write_to(int fd, Level level, const char* file, int line, const std::string& text) {
  static const std::string host = hostname();
  const long tid = syscall(SYS_gettid);
  std::string out;
  if (level == Level::kVersion) {
    out = time_of(level) + text + "\n";
  } else if (level == Level::kWarn) {
    const char* base = strrchr(file, '/');
    out = fmt::format("\n{}{}:{}:{} [{}] {}:{} NCCL WARN {}\n", time_of(level), host, getpid(), tid,
                      shown_device(), base ? base + 1 : file, line, text);
  } else {
    const char* word = level == Level::kTrace ? "TRACE" : "INFO";
    out = fmt::format("{}{}:{}:{} [{}] NCCL {} {}\n", time_of(level), host, getpid(), tid,
                      shown_device(), word, text);
  }
  [[maybe_unused]] ssize_t written = ::write(fd, out.data(), out.size());
}

}  // namespace

void write(Level level, Subsystem subsystem, const char* file, int line, const std::string& text) {
  if (enabled(level, subsystem)) write_to(current_fd.load(), level, file, line, text);
}

void tell(const char* file, int line, const std::string& text) {
  const bool shown = enabled(Level::kWarn, kAll);
  write_to(shown ? current_fd.load() : STDERR_FILENO, Level::kWarn, file, line, text);
}

}  // namespace weft::log
