// The struct behind an ncclComm_t. Handles are never freed, so a use after ncclCommDestroy is
// recognised.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/comm/comm_config.h"
#include "src/comm/communicator.h"
#include "src/comm/init_cancel.h"
#include "src/comm/profiler/profiler.h"
#include "src/comm/progress.h"
#include "src/comm/user_settings.h"
#include "src/exec/datatype.h"

namespace weft {

enum class CommState : uint8_t {
  kInitializing,
  kReady,
  kFailed,
  kFinalized,
  kRevoked,
  kSuspending,  // its parts end
  kSuspended,
  kDead
};

// A user-made reduction operator.
struct UserOp {
  bool alive = false;
  ncclDataType_t type = ncclFloat32;
  uint64_t bits = 0;
  const void* device_scalar = nullptr;  // set: the scalar is read here when the operation runs
};

// A suspended communicator: what it becomes when it is resumed.
struct Asleep {
  Child child;
  uint64_t bytes = 0;                                      // given back
  std::vector<std::pair<const void*, size_t>> registered;  // memory, for the new one
  std::shared_ptr<void> windows;                           // see Windows::take()
};

// What was prepared for communicators that follow this one.
struct Successors {
  std::optional<Child> grown;    // its id was made by ncclCommGetUniqueId and not used yet
  std::optional<Asleep> asleep;  // set while it is suspended
};

}  // namespace weft

struct ncclComm {
  static constexpr uint64_t kMagic = 0x6d6d6f6374666577;
  const uint64_t magic = kMagic;
  std::atomic<weft::CommState> state{weft::CommState::kInitializing};
  const int generation = weft::fork_generation();
  std::atomic<int> users{0};         // calls and inits under way
  std::atomic<bool> started{false};  // a call of StartedCalls runs
  weft::Progress progress;           // of non-blocking calls
  int rank = 0, nranks = 0, device = 0;
  std::atomic<uint64_t> calls{0};  // operations so far, for the log
  uint64_t issuer = 0;  // the thread that makes its calls, by a number; see CommunicatorOptions
  // The thread that made it, or the one that makes its calls: thread_number(), twice, plus 1 once
  // it has made one. 0: there are several, or one that waits for nothing.
  std::atomic<uint64_t> caller{0};
  uint32_t tag = 0;  // keeps operators of different communicators apart
  weft::CommConfig config;
  std::unique_ptr<weft::Profiler> profiler;  // nullptr: there is no plugin; observes impl
  std::unique_ptr<weft::Communicator> impl;
  const std::shared_ptr<weft::InitCancel> cancel = std::make_shared<weft::InitCancel>();

  // ncclCommShrink is done, and no call came since. Its success stands before the fault that was
  // the reason to shrink.
  std::atomic<bool> shrunk{false};

  std::atomic<uint64_t> identity{0};  // the same on all ranks; 0: not known yet

  // Protects what follows, and rank and nranks until it is ready.
  std::mutex mutex;
  std::string text;  // of the last error
  std::vector<weft::UserOp> ops;
  weft::Successors next;
  weft::UserSettings settings;
  std::vector<ncclComm*> children;  // being made from this one in the background
};

namespace weft {

// A handle in state kInitializing.
ncclComm* new_handle(int rank, int nranks, const CommConfig& config);

// Calls `fn` for every handle that is not dead. Meanwhile no handle is made.
void for_each_handle(const std::function<void(ncclComm&)>& fn);

// Throws Error(ncclInvalidArgument) if `comm` is null, no handle, or destroyed.
void check_handle(const ncclComm* comm, const char* argument = "comm");

// Keeps a communicator alive while a call uses it. The constructor throws if the communicator takes
// no operations. Without `for_operations` it also accepts finalized and revoked communicators.
class Use {
 public:
  explicit Use(ncclComm& comm, bool for_operations = true);
  ~Use();
  Use(Use&& other) noexcept : comm_(other.comm_) { other.comm_ = nullptr; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Use& operator=(Use&&) = delete;
  Communicator& operator*() const { return *comm_->impl; }
  Communicator* operator->() const { return comm_->impl.get(); }

 private:
  ncclComm* comm_;
};

// Returns whether it is another text than before.
bool set_text(ncclComm& comm, const std::string& text);
// The user has been told of a failure.
bool has_text(ncclComm& comm);

}  // namespace weft
