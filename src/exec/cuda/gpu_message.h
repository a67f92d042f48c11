// A message of send/recv on a GPU.
#pragma once

#include <cstddef>

namespace weft::cuda {

struct GpuMessage {
  void* pointer = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

}  // namespace weft::cuda
