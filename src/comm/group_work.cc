// See group_work.h.
#include "src/comm/group_work.h"

#include <pthread.h>

#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "src/base/error.h"

namespace weft {

void launch(std::span<const PendingOneSided> calls) {
  std::map<ncclComm*, std::vector<const OneSidedCall*>> writes, waits;
  for (const PendingOneSided& pending : calls) {
    const bool last =
        pending.call.kind == OneSidedCall::Kind::kWait && !pending.comm->impl->on_gpu();
    (last ? waits : writes)[pending.comm].push_back(&pending.call);
  }
  for (const auto* part : {&writes, &waits})
    for (const auto& [comm, list] : *part) {
      const Use use(*comm);
      try {
        use->one_sided().run(list);
      } catch (const Error& error) {
        set_text(*comm, error.what());
        throw;
      }
    }
}

void run_all(const std::vector<CommunicatorWork>& all) {
  std::map<ncclComm*, std::vector<const CommunicatorWork*>> by_comm;
  for (const CommunicatorWork& work : all) by_comm[work.comm].push_back(&work);
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&](const std::vector<const CommunicatorWork*>& list) {
    try {
      for (const CommunicatorWork* work : list) work->work();
    } catch (...) {
      std::lock_guard lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (const auto& [comm, list] : by_comm)
    if (comm != by_comm.begin()->first) {
      threads.emplace_back([&run, &list] { run(list); });
      pthread_setname_np(threads.back().native_handle(), "weft-group");
    }
  run(by_comm.begin()->second);
  for (std::thread& thread : threads) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace weft
