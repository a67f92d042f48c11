// Host memory that copies can use without the driver's help. A copy to or from ordinary memory goes
// through buffers of the driver that all threads of a process share: one that waits behind a kernel
// keeps them, and ranks as threads deadlock.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace weft::test {

// Taken from one block that is made at the first call (by stream_number() at the latest). May be
// made and destroyed while kernels wait. Thread-safe.
class Pinned {
 public:
  explicit Pinned(size_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  template <typename T = char>
  T* data() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  char* data_;
  int size_class_;
};

// Copies in stream order, and waits for it.
void upload(void* device, const void* host, size_t bytes, cudaStream_t stream);
void download(void* host, const void* device, size_t bytes, cudaStream_t stream);

}  // namespace weft::test
