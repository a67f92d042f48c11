// Memory and its registration. In host mode, memory of ncclMemAlloc is always shared between
// processes. Registering it adds nothing, but the registration is recorded and checked.
#include <algorithm>

#include "src/api/checks.h"
#include "src/api/guard.h"
#include "src/base/config.h"
#include "src/comm/suspension.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/transport/segments.h"

namespace weft::api {
namespace {

// The object behind handles of ncclCommRegister. Registrations owns it.
struct Registration {
  const ncclComm* comm;
  void* base;
  size_t size;
};

// The process's registrations. Few, and operations never search them.
class Registrations {
 public:
  static Registrations& instance() {
    static Registrations& all = *std::make_unique<Registrations>().release();  // for exit handlers
    return all;
  }
  Registration* add(const ncclComm* comm, void* base, size_t size) {
    std::lock_guard lock(mutex_);
    all_.push_back(std::make_unique<Registration>(Registration{comm, base, size}));
    return all_.back().get();
  }
  // nullptr: the handle is none of the communicator's.
  const void* base_of(const ncclComm* comm, const void* handle) {
    std::lock_guard lock(mutex_);
    const auto it = std::find_if(all_.begin(), all_.end(), [&](const auto& one) {
      return one.get() == handle && one->comm == comm;
    });
    return it == all_.end() ? nullptr : (*it)->base;
  }
  void remove(const void* handle) {
    std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const auto& one) { return one.get() == handle; });
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Registration>> all_;
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
  const void* base = Registrations::instance().base_of(comm, handle);
  if (base == nullptr) return false;
  if (!forget_registered(*comm, base)) {
    const Use use(*comm);
    if (use->gpu() != nullptr) use->gpu()->deregister_memory(base);
  }
  Registrations::instance().remove(handle);  // last, because the rest may fail
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

}  // namespace weft::api
