// See event_loop.h.
#include "src/transport/event_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <condition_variable>

#include "src/base/error.h"
#include "src/base/fork.h"
#include "src/base/rough_clock.h"

namespace weft {

EventLoop& EventLoop::instance() {
  static PerProcess<EventLoop> loop;
  return loop.get();
}

EventLoop::EventLoop()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_) fail_errno(errno, "cannot make the control thread's epoll");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_.get();
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  std::mutex started_mutex;
  std::condition_variable started;
  bool ready = false;
  std::thread thread([&] {
    {
      std::lock_guard lock(started_mutex);
      thread_id_ = std::this_thread::get_id();
      ready = true;
      started.notify_one();
    }
    loop();
  });
  pthread_setname_np(thread.native_handle(), "weft-control");
  thread.detach();
  std::unique_lock lock(started_mutex);
  started.wait(lock, [&] { return ready; });
}

void EventLoop::run(const std::function<void()>& task) {
  if (on_loop_thread()) return task();
  std::mutex done_mutex;
  std::condition_variable done_condition;
  bool done = false;
  {
    std::lock_guard lock(mutex_);
    tasks_.emplace_back([&] {
      task();
      std::lock_guard done_lock(done_mutex);
      done = true;
      done_condition.notify_one();
    });
  }
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(wake_.get(), &one, sizeof one);
  std::unique_lock lock(done_mutex);
  done_condition.wait(lock, [&] { return done; });
}

void EventLoop::watch(int fd, uint32_t events, Callback callback) {
  run([&] {
    callbacks_[fd] = std::make_shared<Callback>(std::move(callback));
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  });
}

void EventLoop::change(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::unwatch(int fd) {
  run([&] {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    callbacks_.erase(fd);
  });
}

void EventLoop::loop() {
  std::array<epoll_event, 64> events;
  for (;;) {
    RoughClock::tick();
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 RoughClock::kTickMs);
    for (int i = 0; i < count; i++) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.fd == wake_.get()) {
        uint64_t ignored = 0;
        [[maybe_unused]] ssize_t got = read(wake_.get(), &ignored, sizeof ignored);
        continue;
      }
      const auto it = callbacks_.find(event.data.fd);
      if (it == callbacks_.end()) continue;
      const std::shared_ptr<Callback> callback = it->second;  // the callback may unwatch itself
      (*callback)(event.events);
    }
    std::vector<std::function<void()>> tasks;
    {
      std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
  }
}

}  // namespace weft
