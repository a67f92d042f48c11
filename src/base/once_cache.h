// A cache whose values are made once per process: threads that ask for a value while another one
// makes it wait for that one.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <mutex>

namespace weft {

// Thread-safe. When it holds `most` values it forgets all of them; values in use stay alive.
template <typename Key, typename Value>
class OnceCache {
 public:
  explicit OnceCache(size_t most) : most_(most) {}

  // `make()` gives a shared_ptr, or throws: then everyone who asks for the key gets the exception.
  template <typename Make>
  std::shared_ptr<const Value> get(const Key& key, Make make) {
    std::promise<std::shared_ptr<const Value>> promise;
    std::shared_future<std::shared_ptr<const Value>> value;
    bool makes_it = false;
    {
      std::lock_guard lock(mutex_);
      if (entries_.size() >= most_ && !entries_.contains(key)) entries_.clear();
      const auto [it, inserted] = entries_.try_emplace(key);
      if (inserted) it->second = promise.get_future().share();
      value = it->second;
      makes_it = inserted;
    }
    if (makes_it) {
      try {
        promise.set_value(make());
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    }
    return value.get();
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  std::map<Key, std::shared_future<std::shared_ptr<const Value>>> entries_;
};

}  // namespace weft
