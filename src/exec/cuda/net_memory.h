// GPU memory for data that NICs carry.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/handles.h"
#include "src/transport/lane_stream.h"

namespace weft::cuda {

// Whether the driver gives memory of a device as descriptors.
bool exports_dma_buf(int device);

// The pages of an allocation as a descriptor. Empty: there is none.
Fd export_dma_buf(uint64_t base, size_t bytes);

// Memory of `bytes` bytes on a device. `dma_buf`: with a descriptor, if the driver gives one. NICs
// that ask for flushes get them anyway; needs_flush says whether the GPU needs them. Throws Error.
LaneGpuMemory net_memory(int device, size_t bytes, bool dma_buf);

}  // namespace weft::cuda
