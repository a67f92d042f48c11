// See first_uses.h.
#include "src/exec/first_uses.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "src/base/log.h"

namespace weft {
namespace {

// Not a timed mutex: ThreadSanitizer of GCC 12 does not see how that is locked.
struct Turns {
  std::mutex mutex;
  std::condition_variable free;
  bool taken = false;

  static Turns& instance() {  // threads may still launch while the process ends
    static Turns& turns = *std::make_unique<Turns>().release();
    return turns;
  }
};

}  // namespace

bool FirstUses::is_new(uint64_t stream_id) {
  if (stream_id == 0) return true;
  if (std::find(known_.begin(), known_.end(), stream_id) != known_.end()) return false;
  if (known_.size() == kMostKnown) known_.erase(known_.begin());
  known_.push_back(stream_id);
  return true;
}

FirstUses::Turn FirstUses::Turn::take() {
  Turns& turns = Turns::instance();
  Turn turn;
  std::unique_lock lock(turns.mutex);
  turn.taken_ = turns.free.wait_for(lock, kLongestWait, [&] { return !turns.taken; });
  if (turn.taken_) {
    turns.taken = true;
  } else {
    WEFT_INFO(kColl, "another rank of this process takes more than {} ms to launch on a new stream",
              kLongestWait.count());
  }
  return turn;
}

FirstUses::Turn::~Turn() {
  if (!taken_) return;
  Turns& turns = Turns::instance();
  {
    const std::lock_guard lock(turns.mutex);
    turns.taken = false;
  }
  turns.free.notify_one();
}

}  // namespace weft
