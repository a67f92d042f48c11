// Which elements of a chunk a thread block has, and where they are.
#pragma once

#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {

// Elements of chunk c of a step that this block moves in a slice (all of the chunk's where blocks
// share them out otherwise).
__device__ inline uint64_t length(const KernelArguments& a, const StepRange& range,
                                  const ProgramStep& step, int32_t c, uint64_t slice) {
  const uint64_t from = static_cast<uint64_t>((step.sub + c) % range.chunks) * range.chunk;
  if (from >= a.count) return 0;
  const uint64_t all = a.count - from < range.chunk ? a.count - from : range.chunk;
  if (range.protocol == Protocol::kReach) return all;
  const uint64_t begin = slice * range.slice + blockIdx.x * range.part;
  uint64_t end = begin + range.part;
  if (end > (slice + 1) * range.slice) end = (slice + 1) * range.slice;
  if (end > all) end = all;
  return end > begin ? end - begin : 0;
}

// Where they begin: `input` and `output` are the buffers of the operand's owner.
__device__ inline std::byte* address(const KernelArguments& a, const StepRange& range,
                                     const ProgramOperand& operand, int32_t c, uint64_t slice,
                                     const std::byte* input, std::byte* output) {
  const auto index = static_cast<uint32_t>(operand.index + c),
             chunks = static_cast<uint32_t>(range.chunks);
  const uint64_t part = range.protocol == Protocol::kReach ? 0 : blockIdx.x * range.part;
  if (operand.buffer == ProgramBuffer::kScratch) {
    const int owner = operand.owner >= 0 ? operand.owner : a.comm.rank;
    const uint32_t set = static_cast<uint32_t>(slice) % range.sets;
    return reinterpret_cast<std::byte*>(a.comm.mailboxes[owner]) + a.comm.stage +
           ((set * range.scratch_chunks + index) * range.slice + part) * a.element;
  }
  const uint64_t at =
      (chunks == 1 ? index * a.count : index / chunks * a.count + index % chunks * range.chunk) +
      slice * range.slice + part;
  std::byte* base =
      operand.buffer == ProgramBuffer::kInput ? const_cast<std::byte*>(input) : output;
  return base + at * a.element;
}

}  // namespace weft::cuda
