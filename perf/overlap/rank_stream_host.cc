// See rank_stream.h. Host mode: a thread per stream. Collectives are complete when they return.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "perf/overlap/rank_stream.h"

namespace weft::perf::overlap {

namespace {

using Clock = std::chrono::steady_clock;

class HostMark : public Mark {
 public:
  void pass() { passed_.set_value(Clock::now()); }
  Clock::time_point at() const { return future_.get(); }
  double us_since(const Mark& earlier) const override {
    const auto from = dynamic_cast<const HostMark&>(earlier).at();
    return std::chrono::duration<double, std::micro>(at() - from).count();
  }

 private:
  std::promise<Clock::time_point> passed_;
  std::shared_future<Clock::time_point> future_ = passed_.get_future().share();
};

class HostStream : public RankStream {
 public:
  HostStream() : thread_([this] { loop(); }) {}
  ~HostStream() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void compute(double us) override {
    add([us] { std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us)); });
  }
  void call(const std::function<void(cudaStream_t)>& collective) override {
    add([collective] { collective(nullptr); });
  }
  MarkPtr mark() override {
    auto mark = std::make_shared<HostMark>();
    add([mark] { mark->pass(); });
    return mark;
  }
  void wait(const MarkPtr& mark) override {
    add([mark] { (void)dynamic_cast<HostMark&>(*mark).at(); });
  }
  void finish() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_.empty() && !busy_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void add(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(job));
    changed_.notify_all();
  }

  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !work_.empty(); });
      if (work_.empty()) return;
      const std::function<void()> job = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      lock.unlock();
      std::exception_ptr failed;
      try {
        job();
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      if (failed) failure_ = failed;
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false, ending_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<RankStream> make_host_stream() { return std::make_unique<HostStream>(); }

}  // namespace weft::perf::overlap
