// See hierarchical_rooted.h. The data consists of pieces, and every piece has an owner on each
// host. The owners of a piece form a chain that starts at the root's host. Each host sends and
// receives the data once at most.
#include "algorithms/generators/hierarchical_rooted.h"

#include "algorithms/generators/building.h"

namespace weft {
namespace {

class Chains {
 public:
  Chains(const Collective& c, const HostMap& map)
      : c_(c), map_(map), schedule_(blank("hierarchical", c, map.most, kLanes)) {}

  Schedule make() {
    for (int r = 0; r < c_.nranks; r++) {
      auto& lanes = schedule_.ranks[static_cast<size_t>(r)].lanes;
      if (c_.kind == CollectiveKind::kBroadcast) {
        broadcast(r, lanes);
      } else {
        reduce(r, lanes);
      }
    }
    drop_empty_lanes(schedule_);
    return std::move(schedule_);
  }

 private:
  enum : int { kSpread, kPass, kTake, kLanes };
  enum : int { kToOwner, kFromOwner };  // channels; between hosts kToOwner

  // Hosts between a rank's host and the root's.
  int distance(int r) const { return wrap(map_.host_of(r) - map_.host_of(c_.root), map_.hosts()); }
  bool last(int r) const { return distance(r) == map_.hosts() - 1; }
  // The owner of a piece on the host that many hosts further from the root.
  Operand further(int r, int p, int steps) const {
    return Operand::peer(map_.owner(p, wrap(map_.host_of(r) + steps, map_.hosts())), kToOwner);
  }

  template <typename Visit>
  void for_owned(int r, Visit visit) const {
    for (int p = 0; p < map_.most; p++)
      if (map_.owner(p, map_.host_of(r)) == r) visit(p);
  }

  void broadcast(int r, std::vector<Lane>& lanes) const {
    const bool root = r == c_.root, near = distance(r) == 0;
    const std::vector<int> neighbours = map_.neighbours(r);
    if (root)
      for (const int q : neighbours)
        for_owned(q, [&](int p) {
          add(lanes[kSpread], {Operand::input(p)},
              {Operand::output(p), Operand::peer(q, kToOwner)});
        });
    for_owned(r, [&](int p) {
      const Operand from = root   ? Operand::input(p)
                           : near ? Operand::peer(c_.root, kToOwner)
                                  : further(r, p, -1);
      Operands to = {Operand::output(p)};
      if (!last(r)) to.push_back(further(r, p, 1));
      for (const int q : neighbours)
        if (q != c_.root) to.push_back(Operand::peer(q, kFromOwner));
      add(lanes[kPass], {from}, std::move(to));
    });
    if (root) return;
    for (const int q : neighbours)
      for_owned(q, [&](int p) {
        add(lanes[kTake], {Operand::peer(q, kFromOwner)}, {Operand::output(p)});
      });
  }

  void reduce(int r, std::vector<Lane>& lanes) const {
    const bool root = r == c_.root;
    const std::vector<int> neighbours = map_.neighbours(r);
    for (const int q : neighbours)
      for_owned(q, [&](int p) {
        const int sent = add(lanes[kSpread], {Operand::input(p)}, {Operand::peer(q, kToOwner)});
        // In place, the result overwrites the root's input.
        if (root)
          add(lanes[kTake], {Operand::peer(q, kFromOwner)}, {Operand::output(p)}, 1,
              {{kSpread, sent}});
      });
    for_owned(r, [&](int p) {
      Operands from;
      if (!last(r)) from.push_back(further(r, p, 1));
      for (const int q : map_.on(map_.host_of(r)))
        from.push_back(q == r ? Operand::input(p) : Operand::peer(q, kToOwner));
      const Operand to = root               ? Operand::output(p)
                         : distance(r) == 0 ? Operand::peer(c_.root, kFromOwner)
                                            : further(r, p, -1);
      add(lanes[kPass], std::move(from), {to});
    });
  }

  const Collective& c_;
  const HostMap& map_;
  Schedule schedule_;
};

}  // namespace

Schedule make_hierarchical_rooted(const Collective& c, const HostMap& map) {
  return Chains(c, map).make();
}

}  // namespace weft
