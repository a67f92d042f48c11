// The GPU memory of one rank of a communicator. A pure function of what all ranks know alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/exec/cuda/gpu_executor.h"

namespace weft::cuda {

// One allocation, in this order. Bytes.
struct MemorySizes {
  size_t mailbox = 0;        // with the slots of packets and the words of lanes
  size_t stage = 0;          // for buffers that peers cannot reach
  size_t send_stage = 0;     // for messages that peers cannot reach
  size_t copy_stage = 0;     // of the copy engines
  uint32_t packet_ctas = 0;  // thread blocks that have slots of packets
  size_t words_at = 0;       // where the LaneWords begin, in `mailbox`
  size_t signals_at = 0;     // where the words of one-sided calls begin, in `mailbox`

  size_t total() const { return mailbox + stage + send_stage + copy_stage; }
};

// At most 64 MiB, unless the user asks for more or for copy engines.
MemorySizes memory_sizes(const GpuOptions& options);

// The part of a stage that lanes use for FIFOs and scratch memory, at most. Bytes. `net_lanes`: its
// FIFOs to other hosts lie in pinned memory.
size_t lane_pool_bytes(size_t scratch_bytes, bool net_lanes);

}  // namespace weft::cuda
