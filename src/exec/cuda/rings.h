// A rank's FIFOs in host memory as its GPU sees them: pinned, with device addresses. The port state
// is in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/exec/cuda/device_store.h"
#include "src/transport/fifo.h"

namespace weft::cuda {

// One thread at a time uses it, like its executor.
class Rings {
 public:
  // Ports without a FIFO (of a rank to itself, for example) are left out. `owners` keep the FIFOs'
  // memory, which may stay pinned after this object is gone.
  Rings(std::span<const SendPort> sends, std::span<const RecvPort> receives,
        std::vector<std::shared_ptr<const void>> owners, cudaStream_t stream);
  ~Rings();
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  // In device memory. `number`: the index in the constructor's spans.
  SendPort* send(size_t number) const { return sends_ + number; }
  RecvPort* receive(size_t number) const { return receives_ + number; }
  uint64_t* progress() const { return progress_; }
  uint32_t* leaving() const { return leaving_; }

 private:
  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<void*> pinned_;
  PooledResource memory_;
  SendPort* sends_ = nullptr;
  RecvPort* receives_ = nullptr;
  uint64_t* progress_ = nullptr;
  uint32_t* leaving_ = nullptr;
};

}  // namespace weft::cuda
