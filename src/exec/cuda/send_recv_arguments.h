// Which messages of send/recv a kernel takes, and its arguments. Host code without CUDA.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/gpu_message.h"

namespace weft::cuda {

// Thread blocks that messages may use, the same on all ranks. `packet_ctas`: for those in packets.
struct SendRecvBlocks {
  int packet_ctas = 1, max_ctas = 1;
  uint64_t cta_bytes = 0;  // data per thread block before another block joins
};

// Whether messages of this size go in packets.
bool goes_in_packets(uint64_t bytes);

// Messages of one direction, by kernel. Those between two ranks keep their order, and both ranks
// put them into the same kernels. `stage`: bytes of a peer's part of the stage. Larger messages are
// cut, no matter what else is in the group: the peer may not use one.
std::vector<std::vector<GpuMessage>> into_kernels(std::span<const GpuMessage> messages, int nranks,
                                                  uint64_t stage);

// `comm` and `mine` are set before. Both sides add the messages between them in the same order.
void add_message(SendRecvArguments& a, const SendRecvBlocks& blocks, void* pointer, uint64_t bytes,
                 int peer, uint64_t place, bool sends);
// After the last message. Returns the number of thread blocks.
uint32_t finish(SendRecvArguments& a);
// All messages go in packets.
bool all_in_packets(const SendRecvArguments& a);

}  // namespace weft::cuda
