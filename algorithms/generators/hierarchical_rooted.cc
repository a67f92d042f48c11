// See hierarchical_rooted.h. The data consists of pieces, and every piece has an owner on each
// host. The owners of a piece form a chain that starts at the root's host. Each host sends and
// receives the data once at most.
//
// Of a broadcast, the root sends its own pieces to the next host only. Its neighbours pass these
// pieces on in shares, one per neighbour: otherwise the root's links would carry nearly twice the
// data.
#include "algorithms/generators/hierarchical_rooted.h"

#include <algorithm>

#include "algorithms/generators/building.h"

namespace weft {
namespace {

class Chains {
 public:
  Chains(const Collective& c, const HostMap& map)
      : c_(c),
        map_(map),
        helpers_(map.neighbours(c.root)),
        shares_(c.kind == CollectiveKind::kBroadcast && helpers_.size() > 1
                    ? static_cast<int>(helpers_.size())
                    : 1),
        schedule_(blank("hierarchical", c, map.most * shares_, kLanes)) {}

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
  enum : int { kSpread, kPass, kTake, kNext, kLanes };
  enum : int { kToOwner, kFromOwner };  // channels; between hosts kToOwner

  // Hosts between a rank's host and the root's.
  int distance(int r) const { return wrap(map_.host_of(r) - map_.host_of(c_.root), map_.hosts()); }
  bool last(int r) const { return distance(r) == map_.hosts() - 1; }
  bool near(int r) const { return distance(r) == 0; }
  // The owner of a piece on the host that many hosts further from the root.
  Operand further(int r, int p, int steps) const {
    return Operand::peer(map_.owner(p, wrap(map_.host_of(r) + steps, map_.hosts())), kToOwner);
  }

  template <typename Visit>
  void for_owned(int r, Visit visit) const {
    for (int p = 0; p < map_.most; p++)
      if (map_.owner(p, map_.host_of(r)) == r) visit(p);
  }

  // The chunks of a piece, and of a share of it.
  int first(int p, int share = 0) const { return p * shares_ + share; }
  bool shared(int p) const {
    return shares_ > 1 && map_.owner(p, map_.host_of(c_.root)) == c_.root;
  }
  // The share of a neighbour of the root.
  int share_of(int r) const {
    return static_cast<int>(std::find(helpers_.begin(), helpers_.end(), r) - helpers_.begin());
  }
  // For every share that `r`, on the root's host, passes on: its chunk.
  template <typename Visit>
  void for_shares(int r, Visit visit) const {
    if (shares_ > 1) for_owned(c_.root, [&](int p) { visit(first(p, share_of(r))); });
  }
  // Neighbours but the root.
  Operands others(int r, int channel) const {
    Operands all;
    for (const int q : map_.neighbours(r))
      if (q != c_.root) all.push_back(Operand::peer(q, channel));
    return all;
  }

  void broadcast(int r, std::vector<Lane>& lanes) const {
    const bool root = r == c_.root;
    for (const int q : root ? helpers_ : std::vector<int>())
      for_owned(q, [&](int p) {
        add(lanes[kSpread], {Operand::input(first(p))},
            {Operand::output(first(p)), Operand::peer(q, kToOwner)}, shares_);
      });
    for (const int q : root ? helpers_ : std::vector<int>())
      for_shares(q, [&](int chunk) {
        add(lanes[kSpread], {Operand::input(chunk)}, {Operand::peer(q, kToOwner)});
      });
    for_owned(r, [&](int p) {
      const Operand from = root      ? Operand::input(first(p))
                           : near(r) ? Operand::peer(c_.root, kToOwner)
                                     : further(r, p, -1);
      Operands to = {Operand::output(first(p))};
      if (root && !last(r)) to.push_back(further(r, p, 1));
      if (!root || !shared(p))
        for (const Operand& other : others(r, kFromOwner)) to.push_back(other);
      const int passed = add(lanes[kPass], {from}, std::move(to), shares_);
      // The network is slower than the host, and must not hold up its ranks.
      if (!root && !last(r))
        add(lanes[kNext], {Operand::output(first(p))}, {further(r, p, 1)}, shares_,
            {{kPass, passed}});
    });
    if (root) return;
    if (near(r))
      for_shares(r, [&](int chunk) {
        Operands to = others(r, kFromOwner);
        to.insert(to.begin(), Operand::output(chunk));
        add(lanes[kPass], {Operand::peer(c_.root, kToOwner)}, std::move(to));
      });
    for (const int q : map_.neighbours(r)) {
      for_owned(q, [&](int p) {
        if (q != c_.root || !shared(p))
          add(lanes[kTake], {Operand::peer(q, kFromOwner)}, {Operand::output(first(p))}, shares_);
      });
      if (near(r) && q != c_.root)
        for_shares(q, [&](int chunk) {
          add(lanes[kTake], {Operand::peer(q, kFromOwner)}, {Operand::output(chunk)});
        });
    }
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
      const Operand to = root      ? Operand::output(p)
                         : near(r) ? Operand::peer(c_.root, kFromOwner)
                                   : further(r, p, -1);
      add(lanes[kPass], std::move(from), {to});
    });
  }

  const Collective& c_;
  const HostMap& map_;
  const std::vector<int> helpers_;  // the root's neighbours
  const int shares_;                // of a piece; 1: the root has too few neighbours
  Schedule schedule_;
};

}  // namespace

Schedule make_hierarchical_rooted(const Collective& c, const HostMap& map) {
  return Chains(c, map).make();
}

}  // namespace weft
