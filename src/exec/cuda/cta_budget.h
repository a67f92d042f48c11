// The thread blocks that communicators may use on a GPU. All blocks that wait for each other must
// be resident together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace weft::cuda {

// The thread blocks that the communicators of this process may have resident on a device.
// Communicators may be created concurrently. So each counts with its maximum until its ranks have
// agreed on a number.
class CtaBudget {
 public:
  static CtaBudget& instance() {
    static CtaBudget& all = *std::make_unique<CtaBudget>().release();
    return all;
  }
  // Adds a rank of `group`, which may use at most `most` blocks. Returns the blocks that other
  // communicators held when the group's first rank entered.
  int enter(int device, uint64_t group, int most) {
    std::lock_guard lock(mutex_);
    int others = 0;
    for (const auto& [key, user] : users_)
      if (key.first == device && key.second != group) others += user.ctas;
    User& user = users_[{device, group}];
    if (user.ranks++ > 0) return user.others;
    user.others = others;
    user.ctas = others == 0 ? most : std::max(1, (most - others) / 2);
    return others;
  }
  void settle(int device, uint64_t group, int ctas) {
    std::lock_guard lock(mutex_);
    users_[{device, group}].ctas = ctas;
  }
  void leave(int device, uint64_t group) {
    std::lock_guard lock(mutex_);
    if (--users_[{device, group}].ranks == 0) users_.erase({device, group});
  }

 private:
  struct User {
    int ranks = 0, ctas = 0, others = 0;
  };
  std::mutex mutex_;
  std::map<std::pair<int, uint64_t>, User> users_;
};

}  // namespace weft::cuda
