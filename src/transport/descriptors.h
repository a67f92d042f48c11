// Descriptors that this process lends to other processes of the host by number, until it takes them
// back. They are for memory outside our own segments.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "src/base/handles.h"

namespace weft {

// Thread-safe; one per process.
class Descriptors {
 public:
  static Descriptors& instance();

  struct Lent {
    Fd fd;
    uint64_t size = 0;
  };
  // Returns the number of the first descriptor. The others follow in steps of kStep. Returns 0 if
  // the program could run out of descriptors for its own files.
  uint64_t lend(std::vector<Lent> all);
  static constexpr uint64_t kStep = 2;  // even numbers, because segments have odd ones
  // Takes back all descriptors that were lent together with `first`.
  void take_back(uint64_t first);

  // Like Segments::share().
  template <typename Use>
  bool share(uint64_t id, Use use) {
    std::lock_guard lock(mutex_);
    auto it = lent_.upper_bound(id);
    if (id % kStep != 0 || it == lent_.begin()) return false;
    --it;
    const uint64_t n = (id - it->first) / kStep;
    if (n >= it->second.size()) return false;
    use(it->second[n].fd.get(), it->second[n].size);
    return true;
  }

  Descriptors();

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::vector<Lent>> lent_;  // by the first number
  size_t count_ = 0;
  uint64_t next_id_ = 0;
};

}  // namespace weft
