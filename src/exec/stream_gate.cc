// See stream_gate.h.
#include "src/exec/stream_gate.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "src/base/log.h"

namespace weft {
namespace {

// Not a timed mutex: GCC 12's ThreadSanitizer does not follow its locking.
struct Gate {
  std::mutex mutex;
  std::condition_variable free;
  bool taken = false;

  static Gate& instance() {  // threads may still launch while the process ends
    static Gate& gate = *std::make_unique<Gate>().release();
    return gate;
  }
};

}  // namespace

bool StreamGate::is_new(uint64_t stream_id) {
  if (stream_id == 0) return true;
  if (std::find(known_.begin(), known_.end(), stream_id) != known_.end()) return false;
  if (known_.size() == kMostKnown) known_.erase(known_.begin());
  known_.push_back(stream_id);
  return true;
}

StreamGate::Pass StreamGate::Pass::take() {
  Gate& gate = Gate::instance();
  Pass pass;
  std::unique_lock lock(gate.mutex);
  pass.taken_ = gate.free.wait_for(lock, kLongestWait, [&] { return !gate.taken; });
  if (pass.taken_) {
    gate.taken = true;
  } else {
    WEFT_INFO(kColl, "another rank of this process takes more than {} ms to launch on a new stream",
              kLongestWait.count());
  }
  return pass;
}

StreamGate::Pass::~Pass() {
  if (!taken_) return;
  Gate& gate = Gate::instance();
  {
    const std::lock_guard lock(gate.mutex);
    gate.taken = false;
  }
  gate.free.notify_one();
}

}  // namespace weft
