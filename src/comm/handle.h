// The struct behind an ncclComm_t. Handles are never freed, so a use after ncclCommDestroy is
// recognised.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/comm/comm_config.h"
#include "src/comm/communicator.h"
#include "src/comm/profiler/profiler.h"
#include "src/exec/datatype.h"

namespace weft {

enum class CommState : uint8_t { kInitializing, kReady, kFailed, kFinalized, kRevoked, kDead };

// A user-made reduction operator.
struct UserOp {
  bool alive = false;
  ncclDataType_t type = ncclFloat32;
  uint64_t bits = 0;
  const void* device_scalar = nullptr;  // set: the scalar is read here when the operation runs
};

}  // namespace weft

struct ncclComm {
  static constexpr uint64_t kMagic = 0x6d6d6f6374666577;
  const uint64_t magic = kMagic;
  std::atomic<weft::CommState> state{weft::CommState::kInitializing};
  const int generation = weft::fork_generation();
  std::atomic<int> users{0};                           // calls under way
  std::atomic<ncclResult_t> progress{ncclInProgress};  // of the init or the last non-blocking call
  int rank = 0, nranks = 0, device = 0;
  uint64_t issuer = 0;  // the thread that makes its calls, by a number; see CommunicatorOptions
  uint32_t tag = 0;     // keeps operators of different communicators apart
  weft::CommConfig config;
  std::unique_ptr<weft::Profiler> profiler;  // nullptr: there is no plugin; observes impl
  std::unique_ptr<weft::Communicator> impl;

  std::atomic<uint64_t> identity{0};  // the same on all ranks; 0: not known yet

  std::mutex mutex;  // protects text and ops, and rank and nranks until it is ready
  std::string text;  // of the last error
  std::vector<weft::UserOp> ops;
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

void set_text(ncclComm& comm, const std::string& text);

}  // namespace weft
