// Load/store schedules. After a barrier each rank reads its share from every rank's memory and
// writes it into every rank's memory; a second barrier ends the call. Every input is read once and
// every output written once.
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

bool supports_peer_memory(const Collective& c) {
  return c.kind == CollectiveKind::kSendRecv ? c.nranks == 2 : c.nranks <= kMostReducedRanks;
}

// The receiver reads the data from the sender's memory, then tells the sender.
Schedule send_recv(const Collective& c) {
  Schedule s = blank("peer_memory", c, 1, 1);
  Lane &sender = s.ranks[0].lanes[0], &receiver = s.ranks[1].lanes[0];
  add(sender, {}, {Operand::peer(1)}, 0);
  add(sender, {Operand::peer(1)}, {}, 0);
  add(receiver, {Operand::peer(0)}, {}, 0);
  add(receiver, {Operand::remote(0, Buffer::kInput, 0)}, {Operand::output(0)});
  add(receiver, {}, {Operand::peer(0)}, 0);
  return s;
}

// Chunk `index` of a buffer of every rank, in rank order.
Operands everywhere(int rank, int n, Buffer buffer, int index) {
  Operands operands;
  for (int q = 0; q < n; q++) operands.push_back(memory(rank, q, buffer, index));
  return operands;
}

void work(Lane& lane, const Collective& c, int r) {
  const int n = c.nranks;
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      add(lane, everywhere(r, n, Buffer::kInput, r), everywhere(r, n, Buffer::kOutput, r));
      break;
    case CollectiveKind::kReduceScatter:
      add(lane, everywhere(r, n, Buffer::kInput, r), {Operand::output(0)});
      break;
    case CollectiveKind::kAllGather:
      add(lane, {Operand::input(0)}, everywhere(r, n, Buffer::kOutput, r));
      break;
    case CollectiveKind::kBroadcast:
      add(lane, {memory(r, c.root, Buffer::kInput, r)}, everywhere(r, n, Buffer::kOutput, r));
      break;
    case CollectiveKind::kReduce:
      add(lane, everywhere(r, n, Buffer::kInput, r), {memory(r, c.root, Buffer::kOutput, r)});
      break;
    case CollectiveKind::kAllToAll:
      for (int k = 0; k < n; k++) {
        const int q = wrap(r + k, n);
        add(lane, {memory(r, q, Buffer::kInput, r)}, {Operand::output(q)});
      }
      break;
    case CollectiveKind::kGather:
      add(lane, {Operand::input(0)}, {memory(r, c.root, Buffer::kOutput, r)});
      break;
    default:  // scatter
      add(lane, {memory(r, c.root, Buffer::kInput, r)}, {Operand::output(0)});
  }
}

Schedule make_peer_memory(const Collective& c, bool in_place) {
  const int n = c.nranks;
  if (n == 1) return single_rank("peer_memory", c);
  // An in-place all-to-all would overwrite data that other ranks still read.
  if (in_place && c.kind == CollectiveKind::kAllToAll) {
    Schedule s = kViaScratch.make(c, in_place);
    s.name = "peer_memory";
    return s;
  }
  if (c.kind == CollectiveKind::kSendRecv) return send_recv(c);
  const bool shared = c.kind == CollectiveKind::kAllReduce ||
                      c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kReduce;
  Schedule s = blank("peer_memory", c, shared ? n : 1, 1);
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    meet(lane, r, n);
    work(lane, c, r);
    meet(lane, r, n);
  }
  return s;
}

}  // namespace

const Generator kPeerMemory = {"peer_memory",
                               "load and store in peers' memory between two meetings",
                               supports_peer_memory, make_peer_memory, true};

}  // namespace weft
