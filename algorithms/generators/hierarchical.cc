// See hierarchical.h. The data consists of parts. Every part has a home host, and on each host an
// owner. Same-index owners of different hosts exchange a part, so all ranks of a host use the
// network. Each phase has a lane of its own, so slices go through all phases at once:
//   spread    sends a rank's inputs to the owners on its host
//   sum       the owner reduces its host's inputs and sends the sum towards the home
//   complete  the home's owner reduces the sums of all hosts and sends the result to other hosts
//   collect   the owner passes results on to its host
//   take      receives results from the owners
// An all_reduce has all of them, a reduce_scatter the first three, an all_gather the last three.
#include "algorithms/generators/hierarchical.h"

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "algorithms/generators/hierarchical_exchange.h"
#include "algorithms/generators/hierarchical_rooted.h"
#include "algorithms/generators/host_map.h"

namespace weft {
namespace {

// Ranks of a host, if nobody knows the hosts.
constexpr int kAssumedRanks = 4;

bool is_all_reduce(const Collective& c) { return c.kind == CollectiveKind::kAllReduce; }

bool makes(const Collective& c) {
  return is_all_reduce(c) || c.kind == CollectiveKind::kAllGather ||
         c.kind == CollectiveKind::kReduceScatter || c.kind == CollectiveKind::kBroadcast ||
         c.kind == CollectiveKind::kReduce || c.kind == CollectiveKind::kAllToAll;
}

class Hierarchy {
 public:
  Hierarchy(const Collective& c, const HostMap& map, int most_direct_hosts = kMostDirectHosts,
            bool may_swap = true)
      : c_(c),
        map_(map),
        // Two hosts swap their sums: as many bytes as with two phases, in one hop.
        swaps_(is_all_reduce(c) && map.hosts() == 2 && may_swap),
        ring_(map.hosts() == 1 || map.hosts() > most_direct_hosts) {
    const int per_piece = swaps_ ? 1 : map.hosts();
    schedule_ = blank("hierarchical", c, is_all_reduce(c) ? map.most * per_piece : 1, kLanes);
    for (int h = 0; h < map.hosts(); h++) parts_.push_back(parts_of(h));
  }

  Schedule make() {
    for (int r = 0; r < c_.nranks; r++) {
      Rank me{r, map_.host_of(r), schedule_.ranks[static_cast<size_t>(r)], {}, {}};
      me.read.resize(static_cast<size_t>(schedule_.chunks * c_.input_blocks(r)));
      if (c_.reduces()) {
        spread(me);
        sum(me);
      }
      if (c_.kind == CollectiveKind::kReduceScatter) continue;
      collect(me);
      take(me);
    }
    drop_empty_lanes(schedule_);
    return std::move(schedule_);
  }

 private:
  enum : int { kSpread, kSum, kComplete, kCollect, kTake, kLanes };
  enum : int { kSums, kResults };  // channels

  struct Part {
    int piece = 0;              // owner on every host: HostMap::owner
    int input = 0, output = 0;  // chunks
  };
  struct Rank {
    int rank = 0, host = 0;
    RankSchedule& schedule;
    std::vector<std::vector<Dependency>> read;  // per input chunk: the step that reads it
    std::vector<Dependency> completed;          // per part of its own: the step that completes it
  };

  std::vector<Part> parts_of(int h) const {
    std::vector<Part> parts;
    if (is_all_reduce(c_)) {
      for (int p = 0; p < map_.most; p++) {
        const int chunk = swaps_ ? p : p * map_.hosts() + h;
        parts.push_back({p, chunk, chunk});
      }
    } else {
      const bool scatters = c_.kind == CollectiveKind::kReduceScatter;
      for (const int r : map_.on(h))
        parts.push_back({map_.index_of(r), scatters ? r : 0, scatters ? 0 : r});
    }
    return parts;
  }

  int steps_away(const Rank& me, int k) const { return wrap(me.host + k, map_.hosts()); }
  int owner(const Part& part, int h) const { return map_.owner(part.piece, h); }
  Operand owner_on(const Part& part, int h, int channel) const {
    return Operand::peer(owner(part, h), channel);
  }
  Lane& lane(const Rank& me, int number) const {
    return me.schedule.lanes[static_cast<size_t>(number)];
  }

  // The parts of home `g` that `rank`, of any host, owns.
  template <typename Visit>
  void for_owned(int rank, int g, Visit visit) const {
    for (const Part& part : parts_[static_cast<size_t>(g)])
      if (owner(part, map_.host_of(rank)) == rank) visit(part);
  }

  // Homes in the order in which their sums leave this host, then the own one.
  template <typename Visit>
  void for_homes(const Rank& me, Visit visit) const {
    for (int k = 1; k < map_.hosts() && !swaps_; k++) visit(steps_away(me, ring_ ? -k : k), k);
    visit(me.host, map_.hosts());
  }

  void send_to_neighbours(const Rank& me, Operands& to) const {
    for (const int q : map_.neighbours(me.rank)) to.push_back(Operand::peer(q, kResults));
  }

  void spread(Rank& me) const {
    for_homes(me, [&](int g, int) {
      for (const int q : map_.neighbours(me.rank))
        for_owned(q, g, [&](const Part& part) {
          const int step =
              add(lane(me, kSpread), {Operand::input(part.input)}, {Operand::peer(q, kSums)});
          me.read[static_cast<size_t>(part.input)] = {{kSpread, step}};
        });
    });
  }

  void sum(Rank& me) const {
    for_homes(me, [&](int g, int k) {
      for_owned(me.rank, g, [&](const Part& part) {
        Operands from;
        // In a ring the sum of earlier hosts comes first. The host after the home starts.
        if (ring_ && k > 1) from.push_back(owner_on(part, steps_away(me, -1), kSums));
        for (const int q : map_.on(me.host))
          from.push_back(q == me.rank ? Operand::input(part.input) : Operand::peer(q, kSums));
        if (g == me.host) {
          complete(me, part, std::move(from));
          return;
        }
        const Operand to = owner_on(part, ring_ ? steps_away(me, 1) : g, kSums);
        const int step = add(lane(me, kSum), std::move(from), {to});
        me.read[static_cast<size_t>(part.input)] = {{kSum, step}};
      });
    });
  }

  // At the home. `from`: everything that is to be summed, or the inputs of this host.
  void complete(Rank& me, const Part& part, Operands from) const {
    Operands to = {Operand::output(part.output)};
    if (ring_) {
      me.completed.push_back({kSum, add(lane(me, kSum), std::move(from), std::move(to))});
      return;
    }
    const Operand own = Operand::scratch(me.schedule.scratch_chunks++);
    Operands here = {own};
    if (swaps_) here.push_back(owner_on(part, 1 - me.host, kSums));
    const int summed = add(lane(me, kSum), std::move(from), std::move(here));
    Operands sums;  // in the same order everywhere
    for (int h = 0; h < map_.hosts(); h++)
      sums.push_back(h == me.host ? own : owner_on(part, h, kSums));
    if (swaps_) {
      send_to_neighbours(me, to);
    } else if (is_all_reduce(c_)) {
      send_to_hosts(me, part, to);
    }
    const int step = add(lane(me, kComplete), std::move(sums), std::move(to), 1, {{kSum, summed}});
    me.completed.push_back({kComplete, step});
  }

  void send_to_hosts(const Rank& me, const Part& part, Operands& to) const {
    for (int k = 1; k < map_.hosts(); k++)
      to.push_back(owner_on(part, steps_away(me, k), kResults));
  }

  void collect(Rank& me) const {
    if (swaps_) return;
    collect_own(me);
    for (int k = 1; k < map_.hosts(); k++)
      for_owned(me.rank, steps_away(me, -k), [&](const Part& part) {
        Operands to = {Operand::output(part.output)};
        if (ring_ && k < map_.hosts() - 1)
          to.push_back(owner_on(part, steps_away(me, 1), kResults));
        send_to_neighbours(me, to);
        add(lane(me, kCollect), {owner_on(part, steps_away(me, ring_ ? -1 : -k), kResults)},
            std::move(to), 1, after_reading(me, part));
      });
  }

  void collect_own(Rank& me) const {
    size_t n = 0;
    for_owned(me.rank, me.host, [&](const Part& part) {
      Operands to;
      if (!c_.reduces()) to.push_back(Operand::output(part.output));
      if (ring_ && map_.hosts() > 1) to.push_back(owner_on(part, steps_away(me, 1), kResults));
      send_to_neighbours(me, to);
      if (c_.reduces()) {
        const Dependency completed = me.completed[n++];
        if (!to.empty())
          add(lane(me, kCollect), {Operand::output(part.output)}, std::move(to), 1, {completed});
        return;
      }
      // The network does not wait for the neighbours.
      Operands hosts;
      if (!ring_) send_to_hosts(me, part, hosts);
      if (!hosts.empty()) add(lane(me, kComplete), {Operand::input(0)}, std::move(hosts));
      add(lane(me, kCollect), {Operand::input(0)}, std::move(to));
    });
  }

  void take(Rank& me) const {
    for (int k = 0; k < (swaps_ ? 1 : map_.hosts()); k++)
      for (const int q : map_.neighbours(me.rank))
        for_owned(q, steps_away(me, -k), [&](const Part& part) {
          add(lane(me, kTake), {Operand::peer(q, kResults)}, {Operand::output(part.output)}, 1,
              after_reading(me, part));
        });
  }

  // In place, a result overwrites this rank's input.
  std::vector<Dependency> after_reading(const Rank& me, const Part& part) const {
    if (!c_.reduces()) return {};
    return me.read[static_cast<size_t>(part.input)];
  }

  const Collective& c_;
  const HostMap& map_;
  const bool swaps_, ring_;
  Schedule schedule_;
  std::vector<std::vector<Part>> parts_;  // per home
};

Schedule make_without_hosts(const Collective& c, bool) {
  std::vector<int> hosts;
  for (int r = 0; r < c.nranks; r++) hosts.push_back(r / kAssumedRanks);
  return make_hierarchical(c, hosts);
}

}  // namespace

bool supports_hierarchical(const Collective& c, std::span<const int> hosts) {
  return makes(c) && (!c.reduces() || HostMap(hosts).most < kMostReducedRanks);
}

Schedule make_hierarchical(const Collective& c, std::span<const int> hosts) {
  if (c.nranks == 1) return single_rank("hierarchical", c);
  const HostMap map(hosts);
  if (c.rooted()) return make_hierarchical_rooted(c, map);
  if (c.kind == CollectiveKind::kAllToAll) return make_hierarchical_exchange(c, map);
  return Hierarchy(c, map).make();
}

Schedule make_hierarchical_direct(const Collective& c, std::span<const int> hosts, bool swaps) {
  return Hierarchy(c, HostMap(hosts), kMostReducedRanks - 1, swaps).make();
}

const Generator kHierarchical = {"hierarchical",
                                 "inside hosts first, then between them",
                                 makes,
                                 make_without_hosts,
                                 false,
                                 kUsualChannels,
                                 0,
                                 make_hierarchical,
                                 true};

}  // namespace weft
