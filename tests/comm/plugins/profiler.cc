// A profiler plugin of version WEFT_PROFILER_VERSION, built like an external plugin. It writes a
// line per event to the file WEFT_TEST_PROFILE. WEFT_TEST_PROFILE_MASK selects the kinds.
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "src/comm/profiler/abi.h"

namespace {

using namespace weft::profiler_abi;  // NOLINT

// The layouts of NCCL's headers of each version.
static_assert(offsetof(DescriptorV1, coll) == 24 && offsetof(DescriptorV1::Coll, op) == 64);
static_assert(offsetof(DescriptorV1::Coll, channels) == 80 &&
              offsetof(DescriptorV1::P2p, peer) == 48);
static_assert(offsetof(DescriptorV2::Coll, traffic) == 72 &&
              offsetof(DescriptorV2::Coll, protocol) == 96);
static_assert(offsetof(DescriptorV3::Coll, channels) == 72 &&
              offsetof(DescriptorV3::Coll, protocol) == 88);
static_assert(offsetof(DescriptorV4::Coll, channels) == 56 &&
              offsetof(DescriptorV4::P2p, channels) == 36);
static_assert(offsetof(DescriptorV5, coll) == 24 && offsetof(DescriptorV5::Coll, group) == 80);
static_assert(offsetof(DescriptorV5::P2p, group) == 40 &&
              offsetof(DescriptorV5::CollApi, captured) == 40);
static_assert(offsetof(ProxyOp, peer) == 8 && offsetof(ProxyOp, is_send) == 20);

std::mutex mutex;  // proxy threads report events too
std::FILE* file = nullptr;
size_t events = 0;

ncclResult_t opened(void** context, int* mask, const char* name, int nranks, int rank) {
  const char* path = std::getenv("WEFT_TEST_PROFILE");
  file = path == nullptr ? nullptr : std::fopen((path + std::to_string(rank)).c_str(), "w");
  if (file == nullptr) return ncclSystemError;
  *context = file;
  const char* kinds = std::getenv("WEFT_TEST_PROFILE_MASK");
  *mask = kinds == nullptr ? 0xfff : std::atoi(kinds);
  std::fprintf(file, "init %s %d of %d\n", name, rank, nranks);
  return ncclSuccess;
}

[[maybe_unused]] std::string text(const char* word) { return word; }
[[maybe_unused]] std::string text(uint8_t number) { return std::to_string(number); }

template <typename Descriptor>
ncclResult_t start(void*, void** event, Descriptor* d) {
  const std::lock_guard lock(mutex);
  const size_t id = ++events;
  *event = reinterpret_cast<void*>(id);
  const auto parent = reinterpret_cast<size_t>(d->parent);
  const auto kind = static_cast<unsigned long>(d->kind);
  std::fprintf(file, "start %zu kind %lu parent %zu", id, kind, parent);
  if (d->kind == kColl)
    std::fprintf(file, " coll %s %s count %zu root %d sequence %lu", text(d->coll.function).c_str(),
                 text(d->coll.type).c_str(), d->coll.count, d->coll.root,
                 static_cast<unsigned long>(d->coll.sequence));
  if (d->kind == kP2p)
    std::fprintf(file, " p2p %s %s count %zu peer %d", text(d->p2p.function).c_str(),
                 text(d->p2p.type).c_str(), d->p2p.count, d->p2p.peer);
  if (d->kind == kProxyOp)
    std::fprintf(file, " %s rank %d peer %d channel %d messages %d largest %d%s",
                 d->proxy_op.is_send == 1 ? "sends" : "receives", d->rank, d->proxy_op.peer,
                 d->proxy_op.channel, d->proxy_op.steps, d->proxy_op.chunk,
                 d->proxy_op.pid == getpid() ? "" : " of another process");
  if (d->kind == kProxyStep) std::fprintf(file, " step %d", d->proxy_step.step);
  if constexpr (requires { d->kernel; })
    if (d->kind == kKernelCh)
      std::fprintf(file, " kernel channel %d time %llu", d->kernel.channel,
                   static_cast<unsigned long long>(d->kernel.gpu_time));
  std::fprintf(file, "\n");
  return ncclSuccess;
}

ncclResult_t stop(void* event) {
  const std::lock_guard lock(mutex);
  std::fprintf(file, "stop %zu\n", reinterpret_cast<size_t>(event));
  return ncclSuccess;
}

ncclResult_t record(void* event, int state, void* arguments) {
  const std::lock_guard lock(mutex);
  std::fprintf(file, "state %zu is %d", reinterpret_cast<size_t>(event), state);
#if WEFT_PROFILER_VERSION < 4
  const auto& values = *static_cast<const StateArgumentsV1*>(arguments);
  std::fprintf(file, " bytes %zu steps %d\n", values.proxy_op.bytes, values.proxy_op.steps);
#else
  const auto& values = *static_cast<const StateArgumentsV4*>(arguments);
  std::fprintf(file, " bytes %zu\n", values.proxy_step.bytes);
#endif
  return ncclSuccess;
}

ncclResult_t finalize(void*) {
  std::fprintf(file, "finalize\n");
  std::fclose(file);
  return ncclSuccess;
}

[[maybe_unused]] ncclResult_t init_old(void** context, int* mask) {
  const char* rank = std::getenv("WEFT_TEST_RANK");
  return opened(context, mask, "-", 0, rank == nullptr ? 0 : std::atoi(rank));
}
[[maybe_unused]] ncclResult_t init_v4(void** context, int* mask, const char* name, uint64_t, int,
                                      int nranks, int rank, Logger) {
  return opened(context, mask, name, nranks, rank);
}
[[maybe_unused]] ncclResult_t init_v5(void** context, uint64_t, int* mask, const char* name, int,
                                      int nranks, int rank, Logger) {
  return opened(context, mask, name, nranks, rank);
}

}  // namespace

#define WEFT_TABLE(version, init_function)                                                    \
  extern "C" [[gnu::visibility("default")]] const TableV##version ncclProfiler_v##version = { \
      "test profiler", init_function, {start<DescriptorV##version>, stop, record, finalize}}

#if WEFT_PROFILER_VERSION == 1
WEFT_TABLE(1, init_old);
#elif WEFT_PROFILER_VERSION == 2
WEFT_TABLE(2, init_old);
#elif WEFT_PROFILER_VERSION == 3
WEFT_TABLE(3, init_old);
#elif WEFT_PROFILER_VERSION == 4
WEFT_TABLE(4, init_v4);
#else
WEFT_TABLE(5, init_v5);
#endif
