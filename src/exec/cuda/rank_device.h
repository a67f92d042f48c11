// A rank's stream, memory and graph on a GPU, for tools that play ranks. Users of this header need
// no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "include/nccl.h"

namespace weft::cuda {

// 0: there is no GPU, or WEFT_HOST_MODE forbids it.
int device_count();

// CUDA may wait for kernels when it allocates or frees. So one is made and destroyed while no
// kernel waits for a rank of this process. It uses its stream once for every kind of copy, because
// CUDA may give streams that are first used at the same time the same hardware queue
// (exec/stream_gate.h). Several are made one after the other. Then one thread at a time uses it.
class RankDevice {
 public:
  RankDevice(int device, size_t bytes);
  ~RankDevice();
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;

  int device() const { return device_; }
  void* data() const { return data_; }
  size_t size() const { return size_; }
  cudaStream_t stream() const { return stream_; }
  // For the thread that plays the rank.
  void make_current() const;

  // Pinned memory for copies. A copy of pageable memory could wait behind other ranks' kernels.
  static constexpr size_t kStagingBytes = 4 << 20;
  std::span<std::byte> staging() const { return {staging_, kStagingBytes}; }
  // Between the staging and `data` + `at`, in stream order. They wait for the copy.
  void upload(size_t at, size_t bytes);
  void download(size_t at, size_t bytes);

  // Makes a graph of what `work` puts on the stream, instead of the graph before. No kernel may
  // wait for a rank of this process meanwhile.
  void record(const std::function<void()>& work);
  void replay();
  // Waits for everything on the stream.
  void wait();

 private:
  void forget_graph() noexcept;

  const int device_;
  const size_t size_;
  void* data_ = nullptr;
  std::byte* staging_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* graph_ = nullptr;  // a cudaGraphExec_t
};

}  // namespace weft::cuda
