// Memory from ncclMemAlloc in a window, zero at first. All ranks make and end it together.
#pragma once

#include "nccl.h"
#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/pinned.h"
#include "tests/support/threads.h"

namespace weft::test {

class WindowMemory {
 public:
  WindowMemory(ncclComm_t comm, size_t bytes, cudaStream_t stream) : comm_(comm), stream_(stream) {
    WEFT_OK(ncclMemAlloc(&memory_, bytes));
    WEFT_CUDA(cudaMemsetAsync(memory_, 0, bytes, stream));
    WEFT_CUDA(cudaStreamSynchronize(stream));
    WEFT_OK(ncclCommWindowRegister(comm, memory_, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC));
    EXPECT_NE(window_, nullptr);
  }
  ~WindowMemory() {
    WEFT_OK(ncclCommWindowDeregister(comm_, window_));
    WEFT_OK(ncclMemFree(memory_));
  }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  ncclWindow_t window() const { return window_; }
  void* data() const { return memory_; }
  void write(const void* from, size_t bytes, size_t at = 0) const {
    upload(static_cast<char*>(memory_) + at, from, bytes, stream_);
  }
  void read(void* to, size_t bytes, size_t at = 0) const {
    download(to, static_cast<char*>(memory_) + at, bytes, stream_);
  }

 private:
  ncclComm_t comm_;
  cudaStream_t stream_;
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

}  // namespace weft::test
