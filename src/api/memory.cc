// Memory, registration and windows. In host mode, memory of ncclMemAlloc is always shared between
// processes. Registering it adds nothing, but the registration is recorded and checked.
#include <algorithm>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/base/config.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/transport/segments.h"

// The object behind handles of ncclCommRegister and behind windows. Registrations owns it.
struct ncclWindow_vidmem {
  const ncclComm* comm;
  void* base;
  size_t size;
};

namespace weft::api {
namespace {

// The process's registrations. Few, and operations never search them.
class Registrations {
 public:
  static Registrations& instance() {
    static Registrations& all = *std::make_unique<Registrations>().release();  // for exit handlers
    return all;
  }
  ncclWindow_vidmem* add(const ncclComm* comm, void* base, size_t size) {
    std::lock_guard lock(mutex_);
    all_.push_back(std::make_unique<ncclWindow_vidmem>(ncclWindow_vidmem{comm, base, size}));
    return all_.back().get();
  }
  bool remove(const ncclComm* comm, const void* handle, void*& base) {
    std::lock_guard lock(mutex_);
    const auto it = std::find_if(all_.begin(), all_.end(), [&](const auto& window) {
      return window.get() == handle && window->comm == comm;
    });
    if (it == all_.end()) return false;
    base = (*it)->base;
    all_.erase(it);
    return true;
  }
  // nullptr: `handle` is not a registration of this communicator.
  void* base_of(const ncclComm* comm, const void* handle) {
    std::lock_guard lock(mutex_);
    for (const auto& window : all_)
      if (window.get() == handle && window->comm == comm) return window->base;
    return nullptr;
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<ncclWindow_vidmem>> all_;
};

// Records and checks the registration even if the user turned registration off (`enabled`).
void* add_registration(ncclComm* comm, void* buff, size_t size, bool enabled) {
  check_pointer("buff", buff);
  if (size == 0) fail(ncclInvalidArgument, "size is 0");
  const Use use(*comm);
  if (!use->on_gpu() && Segments::instance().find(buff, size).id == 0)
    WEFT_INFO(kReg,
              "{}: the buffer at {} is not from ncclMemAlloc: processes copy through shared memory "
              "instead",
              use->context().label, buff);
  if (enabled && use->gpu() != nullptr) use->gpu()->register_memory(buff, size);
  return Registrations::instance().add(comm, buff, size);
}

bool remove_registration(ncclComm* comm, const void* handle) {
  void* base = nullptr;
  if (!Registrations::instance().remove(comm, handle, base)) return false;
  const Use use(*comm);
  if (use->gpu() != nullptr) use->gpu()->deregister_memory(base);
  return true;
}

}  // namespace

WEFT_EXPORT(ncclResult_t, MemAlloc, (void** ptr, size_t size)) {
  return guard("ncclMemAlloc", [&] {
    check_pointer("ptr", ptr);
    *ptr = nullptr;
    if (size > SIZE_MAX / 2) fail(ncclInvalidArgument, "size is {}", size);
    *ptr = cuda::available() ? cuda::allocate(size) : Segments::instance().allocate(size);
  });
}

WEFT_EXPORT(ncclResult_t, MemFree, (void* ptr)) {
  if (ptr == nullptr) return ncclSuccess;
  return guard("ncclMemFree", [&] {
    if (cuda::available()) return cuda::release(ptr);
    if (!Segments::instance().release(ptr))
      fail(ncclInvalidArgument, "ptr did not come from ncclMemAlloc");
  });
}

WEFT_EXPORT(ncclResult_t, CommRegister,
            (const ncclComm_t comm, void* buff, size_t size, void** handle)) {
  return guard("ncclCommRegister", [&] {
    check_handle(comm);
    check_pointer("handle", handle);
    *handle = add_registration(comm, buff, size, Config::from_environment().local_register);
  });
}

WEFT_EXPORT(ncclResult_t, CommDeregister, (const ncclComm_t comm, void* handle)) {
  return guard("ncclCommDeregister", [&] {
    check_handle(comm);
    if (!remove_registration(comm, handle))
      fail(ncclInvalidArgument, "handle is not a registration of this communicator");
  });
}

WEFT_EXPORT(ncclResult_t, CommWindowRegister,
            (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)) {
  return guard("ncclCommWindowRegister", [&] {
    check_handle(comm);
    check_pointer("win", win);
    if ((winFlags & ~NCCL_WIN_COLL_SYMMETRIC) != 0)
      fail(ncclInvalidArgument, "winFlags is {:#x}", winFlags);
    *win = nullptr;
    if (Config::from_environment().win_enable)
      *win = static_cast<ncclWindow_t>(add_registration(comm, buff, size, true));
  });
}

WEFT_EXPORT(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  return guard("ncclCommWindowDeregister", [&] {
    check_handle(comm);
    if (win == nullptr) return;  // the window that NCCL_WIN_ENABLE=0 gives
    if (!remove_registration(comm, win))
      fail(ncclInvalidArgument, "win is not a window of this communicator");
  });
}

WEFT_EXPORT(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr)) {
  return guard("ncclWinGetUserPtr", [&] {
    check_handle(comm);
    check_pointer("outUserPtr", outUserPtr);
    *outUserPtr = Registrations::instance().base_of(comm, win);
    if (*outUserPtr == nullptr)
      fail(ncclInvalidArgument, "win is not a window of this communicator");
  });
}

}  // namespace weft::api
