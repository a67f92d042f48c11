// The part of host_tasks.h for blocks of different lengths.
#include <algorithm>

#include "src/comm/host_tasks.h"
#include "src/comm/irregular.h"
#include "src/planner/cost_model.h"
#include "src/transport/segments.h"

namespace weft {

// Both ends of a message cut it by its own length, as a send and a receive do. So a rank may see an
// exchange where its peer sees single messages. Only empty messages differ: a collective sends
// them, because peers compare their lengths.
void HostTasks::add_blocks(const std::vector<Irregular::Block>& blocks, const Call& call,
                           bool messages, std::vector<IrregularBlock>& to) const {
  const bool find = !mesh_.one_process();
  const size_t element = element_size(call.reduction.type);
  Call message;
  message.kind = CollectiveKind::kSendRecv;
  message.reduction = call.reduction;
  to.clear();
  for (const Irregular::Block& block : blocks) {
    IrregularBlock& one = to.emplace_back();
    one.data = static_cast<std::byte*>(block.data);
    one.count = block.count;
    one.iterations = messages ? 0 : 1;
    if (block.count == 0) continue;
    message.count = block.count;
    const Operation cut = operations_.build(message, plans_.half(true), 0);
    one.slice = cut.slice;
    one.iterations = cut.iterations;
    if (!find) continue;
    const SegmentRef ref = Segments::instance().find(block.data, block.count * element);
    one.segment = ref.id;
    one.offset = ref.offset;
  }
}

void HostTasks::add_irregular(host::Batch& batch, const Call& call, const Irregular& blocks,
                              bool messages) {
  const Program& program = plans_.irregular(nranks_);
  host::Task& task = batch.add();
  task.context = &context_;
  task.call = &call;
  task.plan = nullptr;
  task.ready = call.ready;
  task.done = call.done;
  task.done_words = 1;
  add_blocks(blocks.sends, call, messages, task.inputs);
  add_blocks(blocks.receives, call, messages, task.outputs);
  Operation& op = task.operation = {};
  op.program = program.view();
  op.inputs = task.inputs.data();
  op.outputs = task.outputs.data();
  op.reduction.type = call.reduction.type;
  op.element = static_cast<uint32_t>(element_size(call.reduction.type));
  op.collective = static_cast<uint8_t>(messages ? CollectiveKind::kSendRecv : call.kind);
  op.sequence = messages ? 0 : sequence_++;
  uint64_t largest = 0;
  for (const IrregularBlock& block : task.inputs) {
    op.count += block.count;
    op.iterations = std::max(op.iterations, block.iterations);
    op.slice = std::max(op.slice, block.slice);
    largest = std::max(largest, block.count * op.element);
  }
  const bool lends =
      !copies_only_[static_cast<size_t>(CollectiveKind::kSendRecv)] &&
      (!mesh_.one_host() || lending_pays(CollectiveKind::kSendRecv, static_cast<double>(largest)));
  if (lends) op.lend_from = lend_from();
  const int channel = messages ? kPointToPointChannel : collective_channel(0);
  task.sends.clear();
  task.receives.clear();
  for (const ProgramPort& port : program.sends)
    task.sends.push_back(&mesh_.sender(port.peer, channel));
  for (const ProgramPort& port : program.receives)
    task.receives.push_back(&mesh_.receiver(port.peer, channel));
  if (messages) {
    point_to_point_ = true;
    for (int peer = 0; peer < nranks_; peer++) {
      if (blocks.sends[static_cast<size_t>(peer)].count > 0) context_.messages.add(true, peer);
      if (blocks.receives[static_cast<size_t>(peer)].count > 0) context_.messages.add(false, peer);
    }
    return;
  }
  task.after = last_collective_;
  last_collective_ = &task;
}

bool HostTasks::add_exchange(host::Batch& batch, std::span<const Call* const> calls) {
  if (context_.observer != nullptr) return false;  // it wants to hear of every message
  const auto exchange = as_exchange(calls, context_.rank, nranks_);
  if (exchange == nullptr) return false;
  // What this rank sent itself in an earlier group comes first.
  const RecvPort& own = mesh_.receiver(context_.rank, kPointToPointChannel);
  if (own.control != nullptr && __atomic_load_n(&own.control->tail, __ATOMIC_ACQUIRE) > own.head)
    return false;
  add_irregular(batch, *calls[0], *exchange, true);
  return true;
}

}  // namespace weft
