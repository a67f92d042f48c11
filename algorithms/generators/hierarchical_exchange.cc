// See hierarchical_exchange.h. Every rank of another host has a relay on this host, the rank with
// its number. The relay collects what its host has for that rank and sends it in one message, if
// the ranks of a host follow each other. So a rank talks to one rank of every other host instead of
// all of them, and bytes cross once as before.
#include "algorithms/generators/hierarchical_exchange.h"

#include <algorithm>

#include "algorithms/generators/building.h"

namespace weft {
namespace {

class Exchange {
 public:
  Exchange(const Collective& c, const HostMap& map)
      : map_(map), schedule_(blank("hierarchical", c, 1, kLanes)) {}

  Schedule make() {
    for (int r = 0; r < schedule_.collective.nranks; r++) {
      Rank me{r, map_.host_of(r), schedule_.ranks[static_cast<size_t>(r)], {}};
      me.read.resize(schedule_.ranks.size());
      spread(me);
      relay(me);
      exchange_nearby(me);
      take(me);
    }
    drop_empty_lanes(schedule_);
    return std::move(schedule_);
  }

 private:
  enum : int { kSpread, kCollect, kSend, kTake, kLanes };
  enum : int { kToRelay, kToOwner };  // channels

  struct Rank {
    int rank = 0, host = 0;
    RankSchedule& schedule;
    std::vector<int> read;  // per input block: the step of kSpread that reads it
  };
  // Ranks of a host with successive numbers. Their blocks are neighbours in buffers.
  struct Run {
    int first = 0, count = 0;
    size_t index = 0;  // of the first, on its host
  };

  Lane& lane(const Rank& me, int number) const {
    return me.schedule.lanes[static_cast<size_t>(number)];
  }
  int relay_to(int rank, int h) const { return map_.owner(map_.index_of(rank), h); }

  std::vector<Run> runs_on(int h) const {
    std::vector<Run> runs;
    const std::vector<int>& ranks = map_.on(h);
    for (size_t i = 0; i < ranks.size(); i++)
      if (i > 0 && ranks[i] == ranks[i - 1] + 1) {
        runs.back().count++;
      } else {
        runs.push_back({ranks[i], 1, i});
      }
    return runs;
  }

  // The ranks of other hosts, by host. All ranks of a host have the same order.
  template <typename Visit>
  void for_far(const Rank& me, Visit visit) const {
    for (int k = 1; k < map_.hosts(); k++)
      for (const int q : map_.on(wrap(me.host + k, map_.hosts()))) visit(q);
  }

  // Own blocks go to the relays. What this rank relays itself goes to its scratch memory.
  void spread(Rank& me) const {
    int at = 0;
    const auto local = static_cast<int>(map_.on(me.host).size());
    for_far(me, [&](int q) {
      Operand to = Operand::peer(relay_to(q, me.host), kToRelay);
      if (relay_to(q, me.host) == me.rank) {
        to = Operand::scratch(at + map_.index_of(me.rank));
        at += local;
      }
      me.read[static_cast<size_t>(q)] = add(lane(me, kSpread), {Operand::input(q)}, {to});
    });
    me.schedule.scratch_chunks = at;
  }

  // Scratch memory has the blocks for a rank in the order of their ranks.
  void relay(const Rank& me) const {
    int at = 0;
    for_far(me, [&](int q) {
      if (relay_to(q, me.host) != me.rank) return;
      std::vector<Dependency> after = {{kSpread, me.read[static_cast<size_t>(q)]}};
      int collected = -1;
      for (const int p : map_.neighbours(me.rank))
        collected = add(lane(me, kCollect), {Operand::peer(p, kToRelay)},
                        {Operand::scratch(at + map_.index_of(p))});
      if (collected >= 0) after.push_back({kCollect, collected});
      for (const Run& run : runs_on(me.host)) {
        add(lane(me, kSend), {Operand::scratch(at + static_cast<int>(run.index))},
            {Operand::peer(q, kToOwner)}, run.count, std::move(after));
        after.clear();  // the lane's steps are in order
      }
      at += static_cast<int>(map_.on(me.host).size());
    });
  }

  void exchange_nearby(Rank& me) const {
    for (const int q : map_.neighbours(me.rank))
      me.read[static_cast<size_t>(q)] =
          add(lane(me, kSpread), {Operand::input(q)}, {Operand::peer(q, kToOwner)});
    add(lane(me, kSpread), {Operand::input(me.rank)}, {Operand::output(me.rank)});
    const std::vector<int> near = map_.neighbours(me.rank);
    for (auto p = near.rbegin(); p != near.rend(); p++)
      add(lane(me, kTake), {Operand::peer(*p, kToOwner)}, {Operand::output(*p)}, 1,
          after_reading(me, *p, 1));
  }

  void take(const Rank& me) const {
    for (int k = 1; k < map_.hosts(); k++) {
      const int g = wrap(me.host - k, map_.hosts());
      for (const Run& run : runs_on(g))
        add(lane(me, kTake), {Operand::peer(relay_to(me.rank, g), kToOwner)},
            {Operand::output(run.first)}, run.count, after_reading(me, run.first, run.count));
    }
  }

  // In place, a block that arrives overwrites an input.
  static std::vector<Dependency> after_reading(const Rank& me, int first, int count) {
    const auto begin = me.read.begin() + first;
    return {{kSpread, *std::max_element(begin, begin + count)}};
  }

  const HostMap& map_;
  Schedule schedule_;
};

}  // namespace

Schedule make_hierarchical_exchange(const Collective& c, const HostMap& map) {
  return Exchange(c, map).make();
}

}  // namespace weft
