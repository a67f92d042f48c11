// The arguments of a one-round kernel through FIFOs in host memory, except the ranks and their
// FIFOs.
#pragma once

#include "src/exec/cuda/device_comm.h"
#include "src/exec/one_round_shape.h"
#include "src/exec/operation.h"

namespace weft::cuda {

// Whether ring_exchange_kernel.cuh can run it. It uses one thread block. With more data the
// interpreter is better: it has more loads in flight.
inline bool fits_ring_exchange(const Operation& op) {
  return op.iterations == 1 && op.count * op.element <= kMostOneRoundBytes &&
         !op.reduction.premultiply;
}

inline RingExchangeArguments ring_exchange_arguments(const Operation& op,
                                                     const OneRoundShape& shape) {
  const uint64_t bytes = op.count * op.element, stride = op.stride * op.element;
  RingExchangeArguments a;
  a.header = header_for(op, bytes);
  a.header.kind = MessageHeader::kInline;
  const auto block = [&](const std::byte* buffer, int32_t index) {
    return buffer + static_cast<int64_t>(index) * static_cast<int64_t>(stride);
  };
  a.input = block(op.input, shape.send_base);
  a.output = const_cast<std::byte*>(block(op.output, shape.receive_base));
  a.own_from = block(op.input, shape.own_from);
  a.own_to = shape.copies_own ? const_cast<std::byte*>(block(op.output, shape.own_to)) : nullptr;
  if (a.own_to == a.own_from) a.own_to = nullptr;
  a.send_stride = shape.send_step == 0 ? 0 : stride;
  a.receive_stride = shape.receive_step == 0 ? 0 : stride;
  a.send_to = shape.send_to;
  a.receive_from = shape.receive_from;
  a.sums_own = shape.sums_own;
  a.divide_by = op.reduction.divide_by;
  a.op = op.reduction.op;
  const auto number = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  a.aligned = ((number(a.input) | number(a.output) | number(a.own_from) | number(a.own_to) |
                a.send_stride | a.receive_stride) &
               15) == 0;
  return a;
}

}  // namespace weft::cuda
