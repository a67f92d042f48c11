// Version, errors, groups, and the functions of weft.h.
#include "include/weft.h"
#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/base/last_error.h"
#include "src/comm/cluster.h"
#include "src/comm/communicator.h"
#include "src/comm/group.h"
#include "src/comm/handle.h"
#include "src/exec/cuda/gpu_executor.h"

namespace weft::api {

WEFT_EXPORT(ncclResult_t, GetVersion, (int* version)) {
  return guard("ncclGetVersion", [&] {
    check_pointer("version", version);
    *version = NCCL_VERSION_CODE;
  });
}

WEFT_EXPORT(const char*, GetErrorString, (ncclResult_t result)) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the Weft developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "operation in progress";
    case ncclTimeout:
      return "operation timed out";
    default:
      return "unknown result code";
  }
}

// Without a communicator: the process's last error, whichever thread it happened in. With one: the
// calling thread's, or else the communicator's, or else the process's.
WEFT_EXPORT(const char*, GetLastError, (ncclComm_t comm)) {
  thread_local std::string text;
  text.clear();
  if (comm != nullptr && comm->magic == ncclComm::kMagic) {
    text = last_error();
    std::lock_guard lock(comm->mutex);
    if (text.empty()) text = comm->text;
  }
  if (text.empty()) text = remembered_error();
  return text.c_str();
}

WEFT_EXPORT(void, ResetDebugInit, ()) { log::reset(); }

extern "C" [[gnu::visibility("default"), gnu::weak, gnu::alias("pncclResetDebugInit")]] void
ncclResetDebugInitInternal();

WEFT_EXPORT(ncclResult_t, GroupStart, ()) {
  group_start();
  return ncclSuccess;
}

WEFT_EXPORT(ncclResult_t, GroupEnd, ()) {
  return guard("ncclGroupEnd", [] { return group_end(); });
}

// Forgets the group. If some call's time is unknown, the estimate stays undefined, as the header
// allows.
WEFT_EXPORT(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * simInfo)) {
  return guard("ncclGroupSimulateEnd", [&] {
    if (simInfo != nullptr) {
      const ncclSimInfo_t fresh = NCCL_SIM_INFO_INITIALIZER;
      if (simInfo->magic != fresh.magic)
        fail(ncclInvalidArgument,
             "simInfo: magic is {:#x}; initialize it with NCCL_SIM_INFO_INITIALIZER",
             simInfo->magic);
      simInfo->estimatedTime = NCCL_UNDEF_FLOAT;
    }
    const GroupEstimate estimate = group_discard();
    if (simInfo != nullptr && estimate.known && estimate.calls > 0)
      simInfo->estimatedTime = static_cast<float>(estimate.us);
    WEFT_INFO(kTuning, "ncclGroupSimulateEnd: {} calls, {}", estimate.calls,
              estimate.known ? fmt::format("about {:.1f} us", estimate.us) : "no estimate");
  });
}

}  // namespace weft::api

extern "C" {

[[gnu::visibility("default")]] const char* weftVersion(void) {
  return "Weft " WEFT_VERSION_STRING ", NCCL 2.30.7 contract";
}

[[gnu::visibility("default")]] ncclResult_t weftPlaceRanks(const char* topo, int nranks,
                                                           weftPattern_t pattern, int* gpus) {
  return weft::api::guard("weftPlaceRanks", [&] {
    weft::api::check_pointer("gpus", gpus);
    if (pattern != WEFT_PIPELINE && pattern != WEFT_RING)
      weft::fail(ncclInvalidArgument, "pattern: {} is none", static_cast<int>(pattern));
    weft::advise_placement(topo, nranks, pattern == WEFT_RING, gpus);
  });
}

[[gnu::visibility("default")]] ncclResult_t weftPlanOf(ncclComm_t comm, const char* collective,
                                                       size_t bytes, const char** plan) {
  return weft::api::guard("weftPlanOf", [&] {
    weft::check_handle(comm);
    weft::api::check_pointer("collective", collective);
    weft::api::check_pointer("plan", plan);
    const auto kind = weft::parse_collective(collective);
    if (!kind) weft::fail(ncclInvalidArgument, "collective: '{}' is none", collective);
    const weft::Use use(*comm, false);
    *plan = use->chooser().choose(weft::PlanCall::of_floats({*kind, comm->nranks, 0}, bytes)).name;
  });
}

[[gnu::visibility("default")]] ncclResult_t weftForcePlan(ncclComm_t comm, const char* collective,
                                                          const char* plan) {
  return weft::api::guard("weftForcePlan", [&] {
    weft::check_handle(comm);
    weft::api::check_pointer("collective", collective);
    const auto kind = weft::parse_collective(collective);
    if (!kind) weft::fail(ncclInvalidArgument, "collective: '{}' is none", collective);
    const weft::Generator* generator = nullptr;
    if (plan != nullptr) {
      generator = weft::find_generator(plan);
      // Connections are made at init. There are none for plans with more channels than usual.
      if (generator == nullptr || generator->channels > weft::kUsualChannels ||
          !generator->supports({*kind, comm->nranks, 0}))
        weft::fail(ncclInvalidUsage, "plan: '{}' does not do {} for {} ranks here", plan,
                   collective, comm->nranks);
    }
    weft::check_free(*comm);
    const weft::Use use(*comm, false);
    use->force_plan(*kind, generator);
    std::lock_guard lock(comm->mutex);
    comm->settings.plans[*kind] = generator;
  });
}

[[gnu::visibility("default")]] ncclResult_t weftCommSetCompression(ncclComm_t comm,
                                                                   const char* setting) {
  return weft::api::guard("weftCommSetCompression", [&] {
    weft::check_handle(comm);
    weft::api::check_pointer("setting", setting);
    // Calls of the group are launched later, and would get the new setting.
    if (weft::in_group()) weft::fail(ncclInvalidUsage, "compression is not set inside a group");
    weft::wait_for_background_calls(*comm);
    weft::check_free(*comm);
    const weft::Use use(*comm);
    use->set_compression(setting);
    std::lock_guard lock(comm->mutex);
    comm->settings.compression = setting;
  });
}

[[gnu::visibility("default")]] ncclResult_t weftCompressionReport(ncclComm_t comm,
                                                                  weftCompression_t* report) {
  return weft::api::guard("weftCompressionReport", [&] {
    weft::check_handle(comm);
    weft::api::check_pointer("report", report);
    const weft::Use use(*comm, false);
    const weft::CompressionCount::Numbers count = use->host_tasks().compression().numbers();
    *report = {count.calls, count.before, count.after, count.passes, count.bound};
  });
}

[[gnu::visibility("default")]] ncclResult_t weftCommSetPriority(ncclComm_t comm, int priority) {
  return weft::api::guard("weftCommSetPriority", [&] {
    weft::check_handle(comm);
    if (priority < -1 || priority > 1)
      weft::fail(ncclInvalidArgument, "priority is {}, it must be -1, 0 or 1", priority);
    const weft::Use use(*comm);
    const auto chosen = static_cast<weft::host::Priority>(priority);
    use->set_priority(chosen);
    std::lock_guard lock(comm->mutex);
    comm->settings.priority = chosen;
  });
}

[[gnu::visibility("default")]] int weftHostMode(void) { return weft::cuda::available() ? 0 : 1; }
}
