// See irregular.h.
#include "src/comm/irregular.h"

#include "src/comm/parts.h"

namespace weft {
namespace {

Irregular::Block part_of_block(const Irregular::Block& block, size_t element, int parts, int part) {
  const PartRange range = part_range(block.count, element, parts, part);
  return {static_cast<std::byte*>(block.data) + range.begin * element, range.count};
}

}  // namespace

std::vector<Call> parts_of_exchange(const Call& call, int parts, const uint32_t* ready,
                                    uint32_t* done) {
  const size_t element = element_size(call.reduction.type);
  std::vector<Call> all(static_cast<size_t>(parts), call);
  for (int p = 0; p < parts; p++) {
    auto part = std::make_shared<Irregular>();
    size_t sent = 0;
    for (const Irregular::Block& block : call.irregular->sends) {
      part->sends.push_back(part_of_block(block, element, parts, p));
      sent += part->sends.back().count;
    }
    for (const Irregular::Block& block : call.irregular->receives)
      part->receives.push_back(part_of_block(block, element, parts, p));
    Call& one = all[static_cast<size_t>(p)];
    one.count = sent;
    one.irregular = std::move(part);
    one.ready = ready == nullptr ? nullptr : ready + p;
    one.done = done == nullptr ? nullptr : done + p;
  }
  return all;
}

std::vector<Call> messages_of(const Call& exchange) {
  std::vector<Call> calls;
  const auto add = [&](const std::vector<Irregular::Block>& blocks, bool sends) {
    for (size_t peer = 0; peer < blocks.size(); peer++) {
      if (blocks[peer].count == 0) continue;
      Call& call = calls.emplace_back();
      call.kind = CollectiveKind::kSendRecv;
      call.sends = sends;
      (sends ? const_cast<void*&>(call.input) : call.output) = blocks[peer].data;
      call.count = blocks[peer].count;
      call.reduction = exchange.reduction;
      call.root = static_cast<int>(peer);
      call.stream = exchange.stream;
    }
  };
  add(exchange.irregular->sends, true);
  add(exchange.irregular->receives, false);
  return calls;
}

std::shared_ptr<const Irregular> as_exchange(std::span<const Call* const> calls, int rank,
                                             int nranks) {
  const auto n = static_cast<size_t>(nranks), me = static_cast<size_t>(rank);
  if (nranks < 2 || calls.size() < 2 * (n - 1) || calls.size() > 2 * n) return nullptr;
  auto exchange = std::make_shared<Irregular>();
  exchange->sends.resize(n);
  exchange->receives.resize(n);
  std::vector<bool> sent(n), received(n);
  for (const Call* call : calls) {
    if (call->kind != CollectiveKind::kSendRecv || call->reduction.type != calls[0]->reduction.type)
      return nullptr;
    const auto peer = static_cast<size_t>(call->root);
    std::vector<bool>& seen = call->sends ? sent : received;
    if (seen[peer]) return nullptr;
    seen[peer] = true;
    (call->sends ? exchange->sends : exchange->receives)[peer] = {
        call->sends ? const_cast<void*>(call->input) : call->output, call->count};
  }
  // What a rank sends to itself may be received in a later group.
  if (exchange->sends[me].count != exchange->receives[me].count) return nullptr;
  for (size_t peer = 0; peer < n; peer++)
    if (peer != me && (!sent[peer] || !received[peer])) return nullptr;
  return exchange;
}

}  // namespace weft
