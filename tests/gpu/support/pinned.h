// Pinned host memory for copies. A copy to or from pageable memory goes through driver buffers that
// all threads of a process share. A copy that waits behind a kernel holds these buffers, and ranks
// as threads deadlock.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace weft::test {

// Comes from one block that the first call makes (stream_number() at the latest). A Pinned may be
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

// Copies in stream order, and waits for the copy.
void upload(void* device, const void* host, size_t bytes, cudaStream_t stream);
void download(void* host, const void* device, size_t bytes, cudaStream_t stream);

}  // namespace weft::test
