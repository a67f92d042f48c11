// See operation_builder.h.
#include "src/comm/operation_builder.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/transport/fifo.h"

namespace weft {
namespace {

// Payload of the largest segment of loopback TCP, in bytes.
constexpr uint64_t kSegment = 65408;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Bytes that an element may take in a message.
uint64_t most_bytes(const Program& program, uint32_t element) {
  uint64_t most = element;
  for (const CodecSpec& spec : program.codecs)
    most =
        std::max(most, round_up(encoded_bytes(spec, spec.block, element), spec.block) / spec.block);
  return most;
}

// Slices are cut where the blocks of all codecs end. Blocks are powers of two.
uint64_t largest_block(const Program& program) {
  uint64_t block = 1;
  for (const CodecSpec& spec : program.codecs) block = std::max<uint64_t>(block, spec.block);
  return block;
}

}  // namespace

Reduction scaled_if_partial(Reduction reduction, bool partial_sums) {
  const bool small_float = reduction.type == ncclFloat16 || reduction.type == ncclBfloat16 ||
                           reduction.type == ncclFloat8e4m3 || reduction.type == ncclFloat8e5m2;
  if (reduction.divide_by > 1 && partial_sums && small_float) {
    reduction.premultiply = true;
    reduction.scale = 1.0f / static_cast<float>(reduction.divide_by);
    reduction.divide_by = 0;
  }
  return reduction;
}

void OperationBuilder::build(Operation& op, const Call& call, const Program& program,
                             uint32_t tag) const {
  if (program.uniform_only && call.count % static_cast<size_t>(program.chunks) != 0)
    fail(ncclInvalidUsage, "count {} does not divide by the {} chunks of the schedule", call.count,
         program.chunks);
  op.program = program.view();
  op.input = static_cast<const std::byte*>(call.input);
  op.output = static_cast<std::byte*>(call.output);
  op.count = call.count;
  op.stride = call.block();
  op.reduction = scaled_if_partial(call.reduction, program.partial_sums);
  op.element = static_cast<uint32_t>(element_size(call.reduction.type));
  op.collective = static_cast<uint8_t>(call.kind);
  op.root = call.kind == CollectiveKind::kSendRecv ? 0 : call.root;
  op.plan = tag;
  slice(op, program);
}

// Blocks become chunks, and chunks become slices. A FIFO holds at least four slices, or more where
// the schedule needs FIFOs that deep.
void OperationBuilder::slice(Operation& op, const Program& program) const {
  const auto chunks = static_cast<uint64_t>(program.chunks);
  const uint64_t block = largest_block(program), element = most_bytes(program, op.element);
  const uint64_t unit = program.uniform_only ? 1 : std::max<uint64_t>({1, 64 / op.element, block});
  op.chunk = round_up((op.count + chunks - 1) / chunks, unit);
  const auto depth = static_cast<uint64_t>(program.fifo_depth);
  const uint64_t ring_share = (ring_bytes_ / std::max<uint64_t>(4, depth + 2) - kFifoAlign) /
                              static_cast<uint64_t>(program.max_step_chunks);
  uint64_t wanted = one_host_ ? config_.slice_bytes : config_.net_slice_bytes;
  if (!one_host_ && nranks_ > 2 && program.collective.reduces())
    wanted = std::min(wanted, config_.net_sum_slice_bytes);
  uint64_t slice = std::max<uint64_t>(64, std::min(wanted, ring_share) / 64 * 64);
  // A slice fills a whole number of the largest segments of loopback TCP. No short segment is left.
  if (!one_host_ && slice > kSegment) slice = slice / kSegment * kSegment;
  // At least a block of every codec.
  op.slice = std::max(slice / element / block, uint64_t{1}) * block;
  if (std::max(slice, op.slice * element) * static_cast<uint64_t>(program.max_step_chunks) +
          kFifoAlign >
      ring_bytes_ / std::max<uint64_t>(2, depth > 2 ? depth + 1 : 2))
    fail(ncclInvalidUsage,
         "a plan that moves {} chunks at once does not fit in FIFOs of {} bytes (WEFT_RING_BYTES)",
         program.max_step_chunks, ring_bytes_);
  op.iterations = std::max<uint64_t>(1, (op.chunk + op.slice - 1) / op.slice);
  // Between hosts a short last slice takes as long as a full one. So all slices get one length.
  if (!one_host_)
    op.slice = std::min(
        op.slice, round_up((op.chunk + op.iterations - 1) / op.iterations, std::max(unit, block)));
  if (op.iterations == 1) op.slice = op.chunk;
}

}  // namespace weft
