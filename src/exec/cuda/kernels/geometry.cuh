// Which elements of a chunk a thread block moves, and their addresses.
#pragma once

#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {

// Where a slice begins in the block's share of a chunk. If there are more than two slices, some
// blocks begin with a shorter one. So blocks do not all fill, meet and empty the stage at the same
// time.
__device__ inline uint64_t slice_begin(const StepRange& range, uint64_t slice) {
  if (slice == 0 || !range.staggered) return slice * range.part;
  return slice * range.part - blockIdx.x % 3 * range.part / 3;
}

// Elements of chunk c of a step that this block moves in a slice. With kPeerMemory: the whole
// chunk, because the blocks divide it otherwise.
__device__ inline uint64_t length(const KernelArguments& a, const StepRange& range,
                                  const ProgramStep& step, int32_t c, uint64_t slice) {
  const uint64_t all = chunk_length(range, a.count, step.sub + c);
  if (range.protocol == Protocol::kPeerMemory) return all;
  const uint64_t share = blockIdx.x * range.share;
  const uint64_t begin = share + slice_begin(range, slice);
  uint64_t end = share + slice_begin(range, slice + 1);
  if (end > share + range.share) end = share + range.share;
  if (end > all) end = all;
  return end > begin ? end - begin : 0;
}

// The address of their first element. `input` and `output` are the buffers of the operand's owner.
__device__ inline std::byte* address(const KernelArguments& a, const StepRange& range,
                                     const ProgramOperand& operand, int32_t c, uint64_t slice,
                                     const std::byte* input, std::byte* output) {
  const int32_t index = operand.index + c;
  if (operand.buffer == ProgramBuffer::kScratch) {
    const int owner = operand.owner >= 0 ? operand.owner : a.comm.rank;
    return reinterpret_cast<std::byte*>(a.comm.mailboxes[owner]) + a.comm.stage +
           (static_cast<uint64_t>(index) * gridDim.x + blockIdx.x) * range.part * a.element;
  }
  const uint64_t at = chunk_begin(range, a.stride, index) +
                      (range.protocol == Protocol::kPeerMemory
                           ? 0
                           : blockIdx.x * range.share + slice_begin(range, slice));
  std::byte* base =
      operand.buffer == ProgramBuffer::kInput ? const_cast<std::byte*>(input) : output;
  return base + at * a.element;
}

}  // namespace weft::cuda
