// NCCL-shaped log lines: NCCL_DEBUG, NCCL_DEBUG_SUBSYS, NCCL_DEBUG_FILE. Any thread may log.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace weft::log {

// The bits of NCCL_DEBUG_SUBSYS, in NCCL's order.
enum Subsystem : uint32_t {
  kInit = 1u << 0,
  kColl = 1u << 1,
  kP2p = 1u << 2,
  kShm = 1u << 3,
  kNet = 1u << 4,
  kGraph = 1u << 5,
  kTuning = 1u << 6,
  kEnv = 1u << 7,
  kAlloc = 1u << 8,
  kCall = 1u << 9,
  kProxy = 1u << 10,
  kNvls = 1u << 11,
  kBootstrap = 1u << 12,
  kReg = 1u << 13,
  kProfile = 1u << 14,
  kRas = 1u << 15,
  kDestroy = 1u << 16,
  kAllocHost = 1u << 17,
  kAll = ~0u,
};

enum class Level { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kAbort = 4, kTrace = 5 };

namespace internal {
// NCCL_DEBUG. The highest, until the environment has been read.
inline std::atomic<int> level{std::numeric_limits<int>::max()};
bool enabled(Level level, Subsystem subsystem);
}  // namespace internal

// True if an INFO (or TRACE) line of this subsystem would be written. Callers ask before they build
// an expensive text. Every call of the library asks, so a no costs one load.
inline bool enabled(Level level, Subsystem subsystem) {
  return static_cast<int>(level) <= internal::level.load(std::memory_order_relaxed) &&
         internal::enabled(level, subsystem);
}

// "host:pid:tid [0] NCCL INFO text". In warnings file:line comes before "NCCL WARN".
void write(Level level, Subsystem subsystem, const char* file, int line, const std::string& text);

// A warning that people must see: where NCCL_DEBUG hides warnings it goes to stderr.
void tell(const char* file, int line, const std::string& text);

// The next line reads the environment again (ncclResetDebugInit).
void reset();

// A file name with %h (host) and %p (pid) replaced.
std::string expand_path(const std::string& pattern);

// The device shown in brackets: that of the communicator that the thread used last. Threads that
// used none show the process's first. -1: there is no communicator yet.
void set_thread_device(int device);

}  // namespace weft::log

#define WEFT_INFO(subsystem, ...)                                                               \
  do {                                                                                          \
    if (::weft::log::enabled(::weft::log::Level::kInfo, ::weft::log::subsystem))                \
      ::weft::log::write(::weft::log::Level::kInfo, ::weft::log::subsystem, __FILE__, __LINE__, \
                         fmt::format(__VA_ARGS__));                                             \
  } while (0)

#define WEFT_WARN(...)                                                                     \
  do {                                                                                     \
    if (::weft::log::enabled(::weft::log::Level::kWarn, ::weft::log::kAll))                \
      ::weft::log::write(::weft::log::Level::kWarn, ::weft::log::kAll, __FILE__, __LINE__, \
                         fmt::format(__VA_ARGS__));                                        \
  } while (0)

#define WEFT_TELL(...) ::weft::log::tell(__FILE__, __LINE__, fmt::format(__VA_ARGS__))
