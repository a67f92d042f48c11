// The worker pool of host mode.
#include "src/exec/host/workers.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <memory>

#include "src/base/config.h"
#include "src/base/fork.h"
#include "src/exec/host/batch.h"

namespace weft::host {

WorkerPool& WorkerPool::instance() {
  static PerProcess<WorkerPool> pool;
  return pool.get();
}

WorkerPool::WorkerPool() {
  int workers = Config::from_environment().workers;
  if (workers < 0)
    workers = static_cast<int>(std::max(1u, std::thread::hardware_concurrency())) - 1;
  for (int w = 0; w < std::min(workers, 64); w++) {
    threads_.emplace_back([this, w] { work(static_cast<size_t>(w)); });
    pthread_setname_np(threads_.back().native_handle(), "weft-worker");
    threads_.back().detach();
  }
}

void WorkerPool::offer(Batch& batch) {
  {
    std::lock_guard lock(mutex_);
    batches_.push_back(&batch);
  }
  offered_.notify_all();
}

void WorkerPool::withdraw(Batch& batch) {
  std::unique_lock lock(mutex_);
  std::erase(batches_, &batch);
  left_.wait(lock, [&] { return batch.helpers_.load(std::memory_order_acquire) == 0; });
}

void WorkerPool::work(size_t index) {
  std::unique_lock lock(mutex_);
  for (;;) {
    Batch* batch = nullptr;
    offered_.wait(lock, [&] {
      batch = nullptr;
      for (Batch* offer : batches_)
        if (offer->helpers_.load(std::memory_order_relaxed) < offer->most_helpers_ &&
            (batch == nullptr || offer->turn_.priority() >= batch->turn_.priority()))
          batch = offer;
      return batch != nullptr;
    });
    batch->helpers_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    // A worker starts at a different task than the caller. It leaves after 200 idle passes.
    for (int idle = 0;
         idle < 200 && !batch->finished() && !batch->failed_.load(std::memory_order_acquire);) {
      if (!batch->turn_.paused() && batch->pass(index + 1) == Batch::Pass::kProgress) {
        idle = 0;
      } else {
        idle++;
        sched_yield();
      }
    }
    lock.lock();
    batch->helpers_.fetch_sub(1, std::memory_order_release);
    left_.notify_all();
    // Lets the caller take the lock to withdraw. Also avoids spinning on a batch that waits for
    // peers.
    if (!batches_.empty()) offered_.wait_for(lock, std::chrono::microseconds(200));
  }
}

}  // namespace weft::host
