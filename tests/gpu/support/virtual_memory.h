// Device memory as PyTorch's expandable segments make it: one reserved address range, backed by
// several physical allocations.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

namespace weft::test {

class VirtualMemory {
 public:
  // `shareable` means that the allocations can be exported as file descriptors.
  VirtualMemory(size_t bytes, bool shareable);
  ~VirtualMemory();
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  void* data() const { return reinterpret_cast<void*>(base_); }

 private:
  struct Piece {
    CUmemGenericAllocationHandle handle;
    size_t at, bytes;
  };
  CUdeviceptr base_ = 0;
  size_t reserved_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace weft::test
