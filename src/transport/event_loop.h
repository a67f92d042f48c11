// The process's only control thread: an epoll loop. It accepts connections, serves the bootstrap
// and watches for peers that die. It never blocks and never moves collective data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/base/handles.h"

namespace weft {

// Thread-safe. Callbacks run on the loop's thread. After unwatch() returns, no callback of that fd
// is running, unless the callback itself called it.
class EventLoop {
 public:
  static EventLoop& instance();

  using Callback = std::function<void(uint32_t events)>;
  void watch(int fd, uint32_t events, Callback callback);
  void change(int fd, uint32_t events);  // loop thread only
  void unwatch(int fd);
  // Runs `task` on the loop's thread and waits for it.
  void run(const std::function<void()>& task);
  bool on_loop_thread() const { return std::this_thread::get_id() == thread_id_; }

  EventLoop();

 private:
  void loop();

  Fd epoll_, wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  std::map<int, std::shared_ptr<Callback>> callbacks_;  // loop thread only
  std::thread::id thread_id_;
};

}  // namespace weft
