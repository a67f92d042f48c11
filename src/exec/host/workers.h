// A few threads per process that help to drive large batches of several lanes. They never own an
// operation: the caller drives it too, so nothing depends on a free worker.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::host {

class Batch;

// Thread-safe. One per process, created at first use and never destroyed: threads of a library must
// survive exit handlers.
class WorkerPool {
 public:
  static WorkerPool& instance();

  bool any() const { return !threads_.empty(); }
  // withdraw() must follow before the batch is destroyed.
  void offer(Batch& batch);
  void withdraw(Batch& batch);

  WorkerPool();

 private:
  void work(size_t index);

  std::mutex mutex_;
  std::condition_variable offered_, left_;
  std::vector<Batch*> batches_;
  std::vector<std::thread> threads_;
};

}  // namespace weft::host
