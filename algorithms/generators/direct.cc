// Every rank talks to every other rank. At most two phases; each rank reduces one part from all
// others at once.
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

// Collectives without a reduction have no limit.
bool supports_direct(const Collective& c) {
  return c.kind != CollectiveKind::kSendRecv && (!c.reduces() || c.nranks <= kMostReducedRanks);
}

void all_reduce(Schedule& s, int n) {
  for (int r = 0; r < n; r++) {
    auto& lanes = s.ranks[static_cast<size_t>(r)].lanes;
    std::vector<int> sent(static_cast<size_t>(n), 0);
    for (int k = 1; k < n; k++) {
      const int q = wrap(r + k, n);
      sent[static_cast<size_t>(q)] = add(lanes[0], {Operand::input(q)}, {Operand::peer(q)});
    }
    Operands to = everyone_else(r, n, 1);
    to.insert(to.begin(), Operand::output(r));
    add(lanes[1], in_rank_order(r, n, Operand::input(r)), std::move(to));
    for (int k = 1; k < n; k++) {
      const int q = wrap(r - k, n);
      add(lanes[2], {Operand::peer(q, 1)}, {Operand::output(q)}, 1,
          {{0, sent[static_cast<size_t>(q)]}});
    }
  }
}

void reduce_scatter(Schedule& s, int n) {
  for (int r = 0; r < n; r++) {
    auto& lanes = s.ranks[static_cast<size_t>(r)].lanes;
    for (int k = 1; k < n; k++)
      add(lanes[0], {Operand::input(wrap(r + k, n))}, {Operand::peer(wrap(r + k, n))});
    add(lanes[1], in_rank_order(r, n, Operand::input(r)), {Operand::output(0)});
  }
}

void all_gather(Schedule& s, int n) {
  for (int r = 0; r < n; r++) {
    auto& lanes = s.ranks[static_cast<size_t>(r)].lanes;
    Operands to = everyone_else(r, n);
    to.insert(to.begin(), Operand::output(r));
    add(lanes[0], {Operand::input(0)}, std::move(to));
    for (int k = 1; k < n; k++)
      add(lanes[1], {Operand::peer(wrap(r - k, n))}, {Operand::output(wrap(r - k, n))});
  }
}

void all_to_all(Schedule& s, int n, bool in_place) {
  for (int r = 0; r < n; r++) {
    auto& lanes = s.ranks[static_cast<size_t>(r)].lanes;
    std::vector<int> sent(static_cast<size_t>(n), 0);
    for (int k = 1; k < n; k++) {
      const int q = wrap(r + k, n);
      sent[static_cast<size_t>(q)] = add(lanes[0], {Operand::input(q)}, {Operand::peer(q)});
    }
    add(lanes[1], {Operand::input(r)}, {Operand::output(r)});
    for (int k = 1; k < n; k++) {
      const int q = wrap(r - k, n);
      std::vector<Dependency> after;
      if (in_place) after.push_back({0, sent[static_cast<size_t>(q)]});
      add(lanes[1], {Operand::peer(q)}, {Operand::output(q)}, 1, std::move(after));
    }
  }
}

void rooted(Schedule& s, int n, int root) {
  const CollectiveKind kind = s.collective.kind;
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    if (r != root) {
      const bool sends = kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather;
      if (sends) {
        add(lane, {Operand::input(0)}, {Operand::peer(root)});
      } else {
        add(lane, {Operand::peer(root)}, {Operand::output(0)});
      }
      continue;
    }
    if (kind == CollectiveKind::kBroadcast) {
      Operands to = everyone_else(r, n);
      to.insert(to.begin(), Operand::output(0));
      add(lane, {Operand::input(0)}, std::move(to));
    } else if (kind == CollectiveKind::kReduce) {
      add(lane, in_rank_order(r, n, Operand::input(0)), {Operand::output(0)});
    } else if (kind == CollectiveKind::kGather) {
      add(lane, {Operand::input(0)}, {Operand::output(root)});
      for (int k = 1; k < n; k++)
        add(lane, {Operand::peer(wrap(r + k, n))}, {Operand::output(wrap(r + k, n))});
    } else {
      for (int k = 1; k < n; k++)
        add(lane, {Operand::input(wrap(r + k, n))}, {Operand::peer(wrap(r + k, n))});
      add(lane, {Operand::input(root)}, {Operand::output(0)});
    }
  }
}

Schedule make_direct(const Collective& c, bool in_place) {
  const int n = c.nranks;
  if (n == 1) return single_rank("direct", c);
  switch (c.kind) {
    case CollectiveKind::kAllReduce: {
      Schedule s = blank("direct", c, n, 3);
      all_reduce(s, n);
      return s;
    }
    case CollectiveKind::kReduceScatter: {
      Schedule s = blank("direct", c, 1, 2);
      reduce_scatter(s, n);
      return s;
    }
    case CollectiveKind::kAllGather: {
      Schedule s = blank("direct", c, 1, 2);
      all_gather(s, n);
      return s;
    }
    case CollectiveKind::kAllToAll: {
      Schedule s = blank("direct", c, 1, 2);
      all_to_all(s, n, in_place);
      return s;
    }
    default: {
      Schedule s = blank("direct", c, 1, 1);
      rooted(s, n, c.root);
      return s;
    }
  }
}

// `direct` on a single lane. It sends everything before it waits. So data that fits into the FIFOs
// takes one trip (two for an all_reduce), and one thread block per part is enough.
Schedule make_one_round(const Collective& c, bool in_place) {
  Schedule s = make_direct(c, in_place);
  s.name = "one_round";
  for (RankSchedule& rank : s.ranks) {
    Lane all;
    for (Lane& lane : rank.lanes)
      for (Step& step : lane.steps) {
        step.after.clear();  // lanes are already in the order of their dependencies
        all.steps.push_back(std::move(step));
      }
    rank.lanes = {std::move(all)};
  }
  return s;
}

bool supports_one_shot(const Collective& c) {
  return c.kind == CollectiveKind::kAllReduce && c.nranks <= kMostReducedRanks;
}

// Every rank sends its whole input to all others and reduces all inputs itself: one phase, for
// small sizes.
Schedule make_one_shot(const Collective& c, bool) {
  const int n = c.nranks;
  if (n == 1) return single_rank("one_shot", c);
  Schedule s = blank("one_shot", c, 1, 1);
  for (int r = 0; r < n; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    add(lane, {Operand::input(0)}, everyone_else(r, n));
    add(lane, in_rank_order(r, n, Operand::input(0)), {Operand::output(0)});
  }
  return s;
}

// Point to point: rank 0 sends, rank 1 receives. The communicator inserts the real peers.
Schedule make_send_recv(const Collective& c, bool) {
  Schedule s = blank("sendrecv", c, 1, 1);
  add(s.ranks[0].lanes[0], {Operand::input(0)}, {Operand::peer(1)});
  add(s.ranks[1].lanes[0], {Operand::peer(0)}, {Operand::output(0)});
  return s;
}

}  // namespace

const Generator kDirect = {"direct", "all ranks exchange parts with all ranks", supports_direct,
                           make_direct};
const Generator kOneRound = {"one_round", "direct, on a single lane: for small sizes",
                             supports_direct, make_one_round};
const Generator kOneShot = {"one_shot", "all ranks send everything to all ranks", supports_one_shot,
                            make_one_shot};
const Generator kSendRecv = {
    "sendrecv", "one rank sends, one receives",
    [](const Collective& c) { return c.kind == CollectiveKind::kSendRecv && c.nranks == 2; },
    make_send_recv};

}  // namespace weft
