// Windows, and where a process reaches the parts of its peers.
#include <map>

#include "include/nccl_device.h"
#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/base/config.h"
#include "src/comm/group.h"

namespace weft::api {
namespace {

// Whose windows the handles are. Some functions get a window only.
class WindowOwners {
 public:
  static WindowOwners& instance() {
    static WindowOwners& all = *std::make_unique<WindowOwners>().release();  // for exit handlers
    return all;
  }
  void set(const void* window, ncclComm* comm) {
    std::lock_guard lock(mutex_);
    owners_[window] = comm;
  }
  void forget(const void* window) {
    std::lock_guard lock(mutex_);
    owners_.erase(window);
  }
  ncclComm& of(const void* window) {
    check_pointer("window", window);
    std::lock_guard lock(mutex_);
    const auto it = owners_.find(window);
    if (it == owners_.end()) fail(ncclInvalidArgument, "window is no window of this process");
    return *it->second;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, ncclComm*> owners_;
};

void register_window(ncclComm& comm, void* buff, size_t size, ncclWindow_t* win) {
  const Use use(comm);
  void* handle = use->one_sided().windows().add(buff, size);
  // For collectives, too.
  if (use->gpu() != nullptr) use->gpu()->register_memory(buff, size);
  WindowOwners::instance().set(handle, &comm);
  *win = static_cast<ncclWindow_t>(handle);
}

// A rank's part of a window; nullptr: it is not within reach.
void* pointer_to(ncclWindow_t window, size_t offset, ncclComm& comm, int rank) {
  const Use use(comm, false);
  Windows& windows = use->one_sided().windows();
  const size_t size = windows.size_at(window, rank);
  if (offset >= size)
    fail(ncclInvalidArgument, "offset is {}, the window of rank {} has {} bytes", offset, rank,
         size);
  std::string why;
  std::byte* base = windows.at(window, rank, why);
  return base == nullptr ? nullptr : base + offset;
}

}  // namespace

WEFT_EXPORT(ncclResult_t, CommWindowRegister,
            (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)) {
  return guard("ncclCommWindowRegister", [&] {
    constexpr int kStrictOrdering = 0x02;  // there is no weaker order here
    check_handle(comm);
    check_pointer("win", win);
    if ((winFlags & ~(NCCL_WIN_COLL_SYMMETRIC | kStrictOrdering)) != 0)
      fail(ncclInvalidArgument, "winFlags is {:#x}", winFlags);
    *win = nullptr;
    check_pointer("buff", buff);
    if (size == 0) fail(ncclInvalidArgument, "size is 0");
    if (!Config::from_environment().win_enable) return;
    run_together(*comm, [=] { register_window(*comm, buff, size, win); });
  });
}

WEFT_EXPORT(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  return guard("ncclCommWindowDeregister", [&] {
    check_handle(comm);
    if (win == nullptr) return;  // the window that NCCL_WIN_ENABLE=0 gives
    const Use use(*comm, false);
    Windows& windows = use->one_sided().windows();
    const Windows::View view = windows.find(win);
    if (use->gpu() != nullptr) use->gpu()->deregister_memory(view.base);
    windows.remove(win);
    WindowOwners::instance().forget(win);
  });
}

WEFT_EXPORT(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr)) {
  return guard("ncclWinGetUserPtr", [&] {
    check_handle(comm);
    check_pointer("outUserPtr", outUserPtr);
    *outUserPtr = nullptr;
    const Use use(*comm, false);
    *outUserPtr = use->one_sided().windows().find(win).base;
  });
}

WEFT_EXPORT(ncclResult_t, GetLsaDevicePointer,
            (ncclWindow_t window, size_t offset, int lsaRank, void** outPtr)) {
  return guard("ncclGetLsaDevicePointer", [&] {
    check_pointer("outPtr", outPtr);
    *outPtr = nullptr;
    ncclComm& comm = WindowOwners::instance().of(window);
    int first = 0, size = 1;
    {
      const Use use(comm, false);
      const Windows& windows = use->one_sided().windows();
      first = comm.rank - windows.lsa_rank();
      size = windows.lsa_size();
    }
    if (lsaRank < 0 || lsaRank >= size)
      fail(ncclInvalidArgument, "lsaRank is {}, the LSA team has {} ranks", lsaRank, size);
    *outPtr = pointer_to(window, offset, comm, first + lsaRank);
    if (*outPtr == nullptr)
      fail(ncclInvalidUsage, "kernels cannot reach this window (NCCL_DEBUG=INFO says why)");
  });
}

// NULL for ranks out of reach, as in NCCL.
WEFT_EXPORT(ncclResult_t, GetPeerDevicePointer,
            (ncclWindow_t window, size_t offset, int peer, void** outPtr)) {
  return guard("ncclGetPeerDevicePointer", [&] {
    check_pointer("outPtr", outPtr);
    *outPtr = nullptr;
    ncclComm& comm = WindowOwners::instance().of(window);
    check_rank("peer", peer, comm);
    *outPtr = pointer_to(window, offset, comm, peer);
  });
}

// NULL: there is no multimem, which ncclCommQueryProperties says, too.
WEFT_EXPORT(ncclResult_t, GetLsaMultimemDevicePointer,
            (ncclWindow_t window, size_t, void** outPtr)) {
  return guard("ncclGetLsaMultimemDevicePointer", [&] {
    check_pointer("outPtr", outPtr);
    *outPtr = nullptr;
    WindowOwners::instance().of(window);
  });
}

WEFT_EXPORT(ncclResult_t, GetMultimemDevicePointer,
            (ncclWindow_t, size_t, ncclMultimemHandle_t, void** outPtr)) {
  return guard("ncclGetMultimemDevicePointer", [&] {
    if (outPtr != nullptr) *outPtr = nullptr;
    fail(ncclInvalidArgument, "Weft has no multimem, so there is no such handle");
  });
}

}  // namespace weft::api
