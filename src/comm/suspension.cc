// See suspension.h.
#include "src/comm/suspension.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/bring_up.h"
#include "src/comm/one_sided.h"

namespace weft {
namespace {

// Runs in the job. `use` is the only one left when the communicator ends.
void put_to_sleep(ncclComm& comm, std::shared_ptr<Use> use, uint64_t round) {
  Communicator& impl = **use;
  if (GpuLauncher* gpu = impl.gpu(); gpu != nullptr) gpu->synchronize();
  Asleep asleep;
  asleep.bytes = impl.memory_bytes();
  if (GpuLauncher* gpu = impl.gpu(); gpu != nullptr) asleep.registered = gpu->registered();
  const bool has_graphs = impl.gpu() != nullptr && impl.gpu()->graphs() > 0;
  asleep.child = impl.children().successor(round, has_graphs);
  CommState expected = CommState::kReady;
  if (!comm.state.compare_exchange_strong(expected, CommState::kSuspending))
    fail(ncclInvalidUsage, "comm was ended while it was being suspended");
  use.reset();
  // The job itself is one user.
  while (comm.users.load() > 1) std::this_thread::sleep_for(std::chrono::microseconds(100));
  comm.impl->one_sided().drain(60);  // nothing writes into windows any more
  asleep.windows = comm.impl->one_sided().windows().take();
  comm.impl.reset();
  comm.profiler.reset();
  WEFT_INFO(kInit, "comm {} rank {} nranks {}: suspended, {} bytes given back", fmt::ptr(&comm),
            comm.rank, comm.nranks, asleep.bytes);
  {
    std::lock_guard lock(comm.mutex);
    comm.next.asleep = std::move(asleep);
  }
  expected = CommState::kSuspending;  // unless it was ended meanwhile
  comm.state.compare_exchange_strong(expected, CommState::kSuspended);
}

void wake(ncclComm& comm) {
  Asleep asleep;
  UserSettings settings;
  {
    std::lock_guard lock(comm.mutex);
    if (!comm.next.asleep) fail(ncclInvalidUsage, "comm was ended before it could be resumed");
    settings = comm.settings;
    asleep = std::move(*comm.next.asleep);
    comm.next.asleep.reset();
  }
  if (asleep.child.rendezvous != nullptr) asleep.child.rendezvous->hand_over();
  bring_up(comm, asleep.child.id, "ncclCommResume", {}, [&](Communicator& impl) {
    if (GpuLauncher* gpu = impl.gpu(); gpu != nullptr)
      for (const auto& [pointer, size] : asleep.registered) gpu->register_memory(pointer, size);
    impl.one_sided().windows().restore(asleep.windows);
    apply(settings, impl);
  });
}

void sleep_on(ncclComm& comm) {
  CommState expected = CommState::kInitializing;
  comm.state.compare_exchange_strong(expected, CommState::kSuspended);
}

}  // namespace

ncclResult_t suspend(ncclComm& comm) {
  auto use = std::make_shared<Use>(comm);
  const uint64_t round = (*use)->children().reserve_round();
  return start({&comm, nullptr, nullptr, [&comm, use = std::move(use), round]() mutable {
                  put_to_sleep(comm, std::move(use), round);
                }});
}

ncclResult_t resume(ncclComm& comm) {
  CommState expected = CommState::kSuspended;
  if (!comm.state.compare_exchange_strong(expected, CommState::kInitializing))
    fail(ncclInvalidUsage, "comm is {} suspended",
         expected == CommState::kSuspending ? "still being" : "not");
  return start({&comm, nullptr, nullptr, [&comm] { wake(comm); }, [&comm] { sleep_on(comm); }});
}

bool forget_registered(ncclComm& comm, const void* base) {
  std::lock_guard lock(comm.mutex);
  if (!comm.next.asleep) return false;
  auto& all = comm.next.asleep->registered;
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == base; });
  if (it != all.end()) all.erase(it);
  return true;
}

void forget(ncclComm& comm) {
  Successors none;
  std::lock_guard lock(comm.mutex);
  std::swap(comm.next, none);  // ends after the lock: it may wait for the control thread
}

uint64_t memory_statistic(ncclComm& comm, ncclCommMemStat_t statistic) {
  uint64_t bytes = 0;
  bool suspended = false;
  {
    std::lock_guard lock(comm.mutex);
    suspended = comm.next.asleep.has_value();
    if (suspended) bytes = comm.next.asleep->bytes;
  }
  if (!suspended) bytes = Use(comm, false)->memory_bytes();
  switch (statistic) {
    case ncclStatGpuMemSuspend:
    case ncclStatGpuMemTotal:
      return bytes;
    case ncclStatGpuMemPersist:
      return 0;
    case ncclStatGpuMemSuspended:
      return suspended ? 1 : 0;
  }
  fail(ncclInvalidArgument, "stat is {}", static_cast<int>(statistic));
}

}  // namespace weft
