// See ordered.h.
#include "algorithms/generators/ordered.h"

#include <algorithm>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

// A ring for one part of every chunk. Places are positions in the ring; every chunk belongs to one.
class OrderedRing {
 public:
  OrderedRing(Schedule& schedule, std::span<const int> order, int lane)
      : schedule_(schedule), order_(order), lane_(lane), n_(static_cast<int>(order.size())) {}

  void make() {
    const Collective& c = schedule_.collective;
    const auto root =
        static_cast<int>(std::find(order_.begin(), order_.end(), c.root) - order_.begin());
    for (int p = 0; p < n_; p++) {
      Lane& steps = schedule_.ranks[static_cast<size_t>(at(p))].lanes[static_cast<size_t>(lane_)];
      const int distance = wrap(p - root, n_);
      switch (c.kind) {
        case CollectiveKind::kAllReduce:
          reduce(steps, p, {Operand::output(chunk(p)), next(p)});
          gather(steps, p);
          break;
        case CollectiveKind::kReduceScatter:
          reduce(steps, p, {Operand::output(part())});
          break;
        case CollectiveKind::kAllGather:
          add(steps, {Operand::input(part())}, {next(p)});
          gather(steps, p);
          add(steps, {Operand::input(part())}, {Operand::output(chunk(p))});
          break;
        case CollectiveKind::kBroadcast: {
          Operands to = {Operand::output(part())};
          if (distance < n_ - 1) to.push_back(next(p));
          add(steps, {distance == 0 ? Operand::input(part()) : previous(p)}, std::move(to));
          break;
        }
        default: {  // reduce: towards the root, opposite to broadcast
          Operands from;
          if (distance < n_ - 1) from.push_back(next(p));
          from.push_back(Operand::input(part()));
          add(steps, std::move(from), {distance == 0 ? Operand::output(part()) : previous(p)});
        }
      }
    }
  }

 private:
  int at(int place) const { return order_[static_cast<size_t>(wrap(place, n_))]; }
  // Two ranks are each other's next and previous: the two rings need a channel each.
  int channel() const { return n_ == 2 ? lane_ : 0; }
  Operand next(int p) const { return Operand::peer(at(p + 1), channel()); }
  Operand previous(int p) const { return Operand::peer(at(p - 1), channel()); }
  int part() const { return lane_; }  // of the parts of a block
  // Of the block of the rank at this place; in an all_reduce, of the only block.
  int chunk(int place) const {
    const int parts = schedule_.chunks;
    return schedule_.collective.kind == CollectiveKind::kAllReduce ? lane_ * n_ + wrap(place, n_)
                                                                   : at(place) * parts + lane_;
  }

  void reduce(Lane& steps, int p, Operands to) const {
    add(steps, {Operand::input(chunk(p - 1))}, {next(p)});
    for (int k = 1; k < n_ - 1; k++)
      add(steps, {previous(p), Operand::input(chunk(p - 1 - k))}, {next(p)});
    add(steps, {previous(p), Operand::input(chunk(p))}, std::move(to));
  }

  void gather(Lane& steps, int p) const {
    for (int k = 1; k < n_; k++) {
      Operands to = {Operand::output(chunk(p - k))};
      if (k < n_ - 1) to.push_back(next(p));
      add(steps, {previous(p)}, std::move(to));
    }
  }

  Schedule& schedule_;
  const std::span<const int> order_;
  const int lane_, n_;
};

}  // namespace

Schedule ordered_ring(const Collective& c, std::span<const int> order, bool both) {
  const int lanes = both ? 2 : 1;
  const bool whole = c.kind == CollectiveKind::kAllReduce;
  Schedule s = blank("ordered_ring", c, whole ? lanes * c.nranks : lanes, lanes);
  OrderedRing(s, order, 0).make();
  if (!both) return s;
  const std::vector<int> back(order.rbegin(), order.rend());
  OrderedRing(s, back, 1).make();
  return s;
}

Schedule ordered_chain(std::span<const int> order) {
  const auto n = static_cast<int>(order.size());
  Schedule s = kChain.make({CollectiveKind::kAllReduce, n, 0}, false);
  std::vector<RankSchedule> ranks(s.ranks.size());
  for (size_t place = 0; place < order.size(); place++) {
    RankSchedule& rank = ranks[static_cast<size_t>(order[place])];
    rank = s.ranks[place];
    for (Lane& lane : rank.lanes)
      for (Step& step : lane.steps)
        for (auto* operands : {&step.from, &step.to})
          for (Operand& operand : *operands)
            if (operand.kind == Operand::Kind::kPeer)
              operand.index = order[static_cast<size_t>(operand.index)];
  }
  s.ranks = std::move(ranks);
  s.name = "ordered_chain";
  return s;
}

}  // namespace weft
