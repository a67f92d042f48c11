// The kernels as the launcher sees them: function addresses by type and operator.
#pragma once

#include <cuda_runtime.h>

#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {

struct Kernels {
  // For arguments that end in a program: one kernel for few bytes of them, and one for all.
  struct BySize {
    const void *few, *all;
    size_t few_bytes;
    const void* of(size_t bytes) const { return bytes <= few_bytes ? few : all; }
  };
  BySize program;             // KernelArguments
  BySize ring;                // RingArguments
  const void* packets;        // PacketArguments
  const void* one_round;      // OneRoundArguments
  const void* ring_exchange;  // RingExchangeArguments
  const void* lanes;          // LaneArguments
};

// For reductions: sum, prod, max or min.
Kernels reduction_kernels(ncclDataType_t type, ncclRedOp_t op);
// For collectives that only move data.
Kernels move_kernels();
const void* send_recv_kernel_function(
    bool packets);  // SendRecvArguments; packets: all messages are in packets
const void* message_kernel_function(bool few);  // MessageArguments
// SmallMessageArguments and up to kFewSmallMessages, or twice kMostKernelMessages.
const void* small_message_kernel_function(bool few);
const void* probe_kernel_function();   // ProbeArguments
const void* stamp_kernel_function();   // uint64_t*: host memory that gets the time
const void* signal_kernel_function();  // SignalArguments

// Once per device. Two kinds of kernel would deadlock while another rank's kernel spins: one that
// CUDA loads lazily, and one that needs more local memory than any before. So init loads all
// kernels, and runs the kernel with the largest stack once, with nothing to do.
void load_kernels(int device, cudaStream_t stream);

// Parts of the table above, one per source file.
Kernels int8_kernels(ncclDataType_t type, ncclRedOp_t op);
Kernels int32_kernels(ncclDataType_t type, ncclRedOp_t op);
Kernels int64_kernels(ncclDataType_t type, ncclRedOp_t op);
Kernels wide_float_kernels(ncclDataType_t type, ncclRedOp_t op);
Kernels half_kernels(ncclDataType_t type, ncclRedOp_t op);
Kernels float8_kernels(ncclDataType_t type, ncclRedOp_t op);

}  // namespace weft::cuda
