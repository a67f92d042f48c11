// Builds with CUDA use host mode or GPUs, as the library does.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "tests/support/device.h"
#include "weft.h"

namespace weft::test {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

// Pinned memory in power-of-two pieces, and streams. All are made before the first kernel runs.
class Pool {
 public:
  static Pool& instance() {
    static Pool pool;
    return pool;
  }

  void* allocate(size_t bytes) {
    std::lock_guard lock(mutex_);
    size_t size = 1024;
    while (size < bytes) size *= 2;
    auto& free = free_[size];
    void* pointer = nullptr;
    if (!free.empty()) {
      pointer = free.back();
      free.pop_back();
    } else {
      if (used_ + size > kBytes) {
        std::fprintf(stderr, "the pool of pinned test memory is used up\n");
        std::abort();
      }
      pointer = base_ + used_;
      used_ += size;
    }
    sizes_[pointer] = size;
    return pointer;
  }

  void release(void* pointer) {
    std::lock_guard lock(mutex_);
    const auto it = sizes_.find(pointer);
    free_[it->second].push_back(pointer);
    sizes_.erase(it);
  }

  cudaStream_t stream(ncclComm_t comm) {
    std::lock_guard lock(mutex_);
    const auto [it, inserted] = by_comm_.try_emplace(comm, nullptr);
    if (inserted) it->second = streams_[next_++ % streams_.size()];
    return it->second;
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 30;
  Pool() : streams_(32) {
    void* base = nullptr;
    check(cudaHostAlloc(&base, kBytes, cudaHostAllocMapped | cudaHostAllocPortable),
          "cudaHostAlloc");
    base_ = static_cast<char*>(base);
    for (auto& stream : streams_)
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  std::mutex mutex_;
  char* base_ = nullptr;
  size_t used_ = 0, next_ = 0;
  std::map<size_t, std::vector<void*>> free_;
  std::map<void*, size_t> sizes_;
  std::vector<cudaStream_t> streams_;
  std::map<ncclComm_t, cudaStream_t> by_comm_;
};

// Asks for enough hardware queues for a stream per rank, for kernels and for copies. CUDA reads the
// variable at its first call. It is set before main(), because other threads may read the
// environment later. Processes under MPS share the hardware queues.
const char* const kQueues = std::getenv("WEFT_TEST_MPS") == nullptr ? "32" : "4";
const bool kQueuesAsked = setenv("CUDA_DEVICE_MAX_CONNECTIONS", kQueues, 0) == 0 &&
                          setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", kQueues, 0) == 0;

}  // namespace

bool on_gpu() {
  static const bool gpu = kQueuesAsked && weftHostMode() == 0;
  return gpu;
}
void* shared_memory(size_t bytes) {
  return on_gpu() ? Pool::instance().allocate(bytes) : std::malloc(bytes);
}
void free_shared_memory(void* pointer) {
  on_gpu() ? Pool::instance().release(pointer) : std::free(pointer);
}
cudaStream_t stream_of(ncclComm_t comm) {
  return on_gpu() ? Pool::instance().stream(comm) : nullptr;
}

const char* finish(ncclComm_t comm) {
  if (!on_gpu()) return "";
  const cudaError_t error = cudaStreamSynchronize(stream_of(comm));
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

}  // namespace weft::test
