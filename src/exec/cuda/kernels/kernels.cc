// See kernels.h.
#include "src/exec/cuda/kernels/kernels.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <vector>

#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/lane_program.h"
#include "src/exec/cuda/ring_exchange_arguments.h"

namespace weft::cuda {

Kernels reduction_kernels(ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32:
    case ncclFloat64:
      return wide_float_kernels(type, op);
    case ncclFloat16:
    case ncclBfloat16:
      return half_kernels(type, op);
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return float8_kernels(type, op);
    case ncclInt8:
    case ncclUint8:
      return int8_kernels(type, op);
    case ncclInt32:
    case ncclUint32:
      return int32_kernels(type, op);
    default:
      return int64_kernels(type, op);
  }
}

void load_kernels(int device, cudaStream_t stream) {
  static std::mutex mutex;
  static std::vector<int> loaded;
  std::lock_guard lock(mutex);
  if (std::find(loaded.begin(), loaded.end(), device) != loaded.end()) return;
  const auto begun = std::chrono::steady_clock::now();
  static KernelArguments nothing;
  static PacketArguments no_packets;
  static OneRoundArguments nothing_in_one_round;
  static SendRecvArguments nothing_paired;
  static RingArguments no_rings;
  static RingExchangeArguments no_ring_exchange;
  static LaneArguments no_lanes;
  static ParameterBytes<kMostMessageBytes> no_messages;
  size_t most = 0;
  const auto load = [&](const void* function, void* arguments) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, function), "loading kernels");
    if (attributes.localSizeBytes <= most) return;
    most = attributes.localSizeBytes;
    void* parameters[] = {arguments};
    check(cudaLaunchKernel(function, dim3(1), dim3(32), parameters, 0, stream), "a first kernel");
  };
  const auto load_all = [&](const Kernels& kernels) {
    for (const void* program : {kernels.program.few, kernels.program.all}) load(program, &nothing);
    load(kernels.packets, &no_packets);
    for (const void* ring : {kernels.ring.few, kernels.ring.all}) load(ring, &no_rings);
    load(kernels.one_round, &nothing_in_one_round);
    load(kernels.ring_exchange, &no_ring_exchange);
    load(kernels.lanes, &no_lanes);
  };
  load(send_recv_kernel_function(true), &nothing_paired);
  load(send_recv_kernel_function(false), &nothing_paired);
  load(message_kernel_function(true), &no_messages);
  load(message_kernel_function(false), &no_messages);
  load(small_message_kernel_function(true), &no_messages);
  load(small_message_kernel_function(false), &no_messages);
  cudaFuncAttributes attributes;
  for (const void* small :
       {probe_kernel_function(), signal_kernel_function(), stamp_kernel_function()})
    check(cudaFuncGetAttributes(&attributes, small), "loading kernels");
  load_all(move_kernels());
  for (int type = 0; type < ncclNumTypes; type++)
    for (int op = ncclSum; op <= ncclMin; op++)
      load_all(reduction_kernels(static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op)));
  check(cudaStreamSynchronize(stream), "loading kernels");
  loaded.push_back(device);
  WEFT_INFO(
      kInit, "GPU {}: kernels loaded in {:.1f} ms, {} bytes of stack", device,
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count(),
      most);
}

}  // namespace weft::cuda
