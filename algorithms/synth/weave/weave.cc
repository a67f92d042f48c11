// Writes the steps of a plan of lanes: forwards for gathering, reversed for reductions.
#include "algorithms/synth/weave/weave.h"

#include <algorithm>
#include <map>

#include "algorithms/synth/routing/halves.h"
#include "algorithms/synth/weave/weave_plan.h"
#include "src/base/error.h"

namespace weft {
namespace {

CollectiveKind mirror(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kReduce:
      return CollectiveKind::kBroadcast;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
      return CollectiveKind::kAllGather;
    default:
      return kind;
  }
}

class Weaver {
 public:
  Weaver(const Routing& routing, const WeaveOptions& options)
      : routing_(routing), options_(options), kind_(routing.collective.kind) {
    pieces_.collective = routing.collective;
    pieces_.collective.kind = mirror(kind_);
    pieces_.chunks = routing.chunks;
    schedule_.name = options.name;
    schedule_.collective = routing.collective;
    schedule_.chunks = routing.chunks;
    if (kind_ == CollectiveKind::kAllReduce) schedule_.chunks *= routing.collective.nranks;
    schedule_.ranks.resize(static_cast<size_t>(routing.collective.nranks));
    last_.resize(schedule_.ranks.size());
  }

  Schedule run() {
    const LaneOptions lanes{options_.machine,   busiest_link(options_.machine, routing_),
                            options_.fuse,      options_.ports,
                            options_.by_hops,   options_.shared,
                            options_.instances, true};
    LaneOptions gathering = lanes;
    gathering.whole_trees = false;
    if (kind_ == CollectiveKind::kAllReduce) {
      WovenPlan first, second;
      in_parallel(
          routing_.transfers.size(),
          [&] { first = plan_lanes(pieces_, routing_.reduction, lanes); },
          [&] { second = plan_lanes(pieces_, routing_.transfers, gathering); });
      reduce(first);
      gather(second);
    } else if (routing_.collective.reduces()) {
      reduce(plan_lanes(pieces_, routing_.transfers, lanes));
    } else {
      gather(plan_lanes(pieces_, routing_.transfers, gathering));
    }
    return std::move(schedule_);
  }

 private:
  // The position of a step in this rank's schedule.
  struct Place {
    int32_t lane = -1, step = -1;
  };

  int32_t chunk(int32_t piece) const { return piece % routing_.chunks; }

  // Where a rank has a piece at the start.
  Operand input(int32_t piece) const {
    switch (kind_) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
      case CollectiveKind::kBroadcast:
      case CollectiveKind::kReduce:
        return Operand::input(chunk(piece));
      case CollectiveKind::kAllToAll:
        return Operand::input(piece % (routing_.collective.nranks * routing_.chunks));
      default:
        return Operand::input(piece);
    }
  }

  // Where a rank that needs a piece gets it.
  Operand output(int32_t piece) const {
    switch (kind_) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather:
      case CollectiveKind::kAllReduce:
        return Operand::output(piece);
      case CollectiveKind::kAllToAll:
        return Operand::output(pieces_.origin(piece) * routing_.chunks + chunk(piece));
      default:
        return Operand::output(chunk(piece));
    }
  }

  // Pieces that a rank must keep but does not need, sorted.
  struct Scratch {
    std::vector<int32_t> kept;
    void finish() {
      std::sort(kept.begin(), kept.end());
      kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    }
    bool has(int32_t piece) const { return std::binary_search(kept.begin(), kept.end(), piece); }
    Operand at(int32_t piece) const {
      return Operand::scratch(
          static_cast<int>(std::lower_bound(kept.begin(), kept.end(), piece) - kept.begin()));
    }
  };

  // Numbers the channels between two ranks, across both halves of an all_reduce.
  std::vector<int16_t> number_channels(const std::vector<WovenFifo>& fifos, bool turned) {
    std::vector<int16_t> channels;
    channels.reserve(fifos.size());
    for (const WovenFifo& fifo : fifos) {
      const int32_t from = turned ? fifo.to : fifo.from, to = turned ? fifo.from : fifo.to;
      channels.push_back(channels_[{from, to}]++);
      if (fifo.links.empty()) continue;
      schedule_.routes.push_back({from, to, channels.back(), fifo.links});
      if (turned)
        std::reverse(schedule_.routes.back().links.begin(), schedule_.routes.back().links.end());
    }
    return channels;
  }

  static void depend(Step& step, const Place& on, int32_t lane) {
    if (on.lane < 0 || on.lane == lane) return;
    for (Dependency& d : step.after)
      if (d.lane == on.lane) {
        d.step = std::max(d.step, on.step);
        return;
      }
    step.after.push_back({on.lane, on.step});
  }

  // Steps of a rank in an order in which they can run.
  struct PlacedStep {
    const WovenStep* step = nullptr;
    int32_t lane = 0;
  };
  static std::vector<PlacedStep> in_run_order(const std::vector<std::vector<WovenStep>>& lanes) {
    std::vector<PlacedStep> ordered;
    for (size_t l = 0; l < lanes.size(); l++)
      for (const WovenStep& step : lanes[l]) ordered.push_back({&step, static_cast<int32_t>(l)});
    std::sort(ordered.begin(), ordered.end(), [](const PlacedStep& a, const PlacedStep& b) {
      return a.step->position < b.step->position;
    });
    return ordered;
  }

  void gather(const WovenPlan& plan) {
    const std::vector<int16_t> channels = number_channels(plan.fifos, false);
    const bool all_reduce = kind_ == CollectiveKind::kAllReduce;
    std::vector<Place> holder(static_cast<size_t>(pieces_.count()));
    for (size_t r = 0; r < plan.lanes.size(); r++) {
      const auto rank = static_cast<int32_t>(r);
      RankSchedule& mine = schedule_.ranks[r];
      const auto first_lane = static_cast<int32_t>(mine.lanes.size());
      mine.lanes.resize(mine.lanes.size() + plan.lanes[r].size());
      Scratch scratch;
      for (const auto& lane : plan.lanes[r])
        for (const WovenStep& step : lane)
          for (int32_t p = step.first; !step.begins && p < step.first + step.count; p++)
            if (pieces_.origin(p) != rank && !pieces_.needed(p, rank)) scratch.kept.push_back(p);
      scratch.finish();
      mine.scratch_chunks =
          std::max(mine.scratch_chunks, static_cast<int32_t>(scratch.kept.size()));
      const auto held = [&](int32_t piece) {
        if (pieces_.origin(piece) == rank) return all_reduce ? output(piece) : input(piece);
        return pieces_.needed(piece, rank) ? output(piece) : scratch.at(piece);
      };
      for (Place& place : holder) place = {};
      if (all_reduce) holder = last_[r];
      for (const auto& [woven, l] : in_run_order(plan.lanes[r])) {
        const int32_t number = first_lane + l;
        Lane& lane = mine.lanes[static_cast<size_t>(number)];
        Step step;
        step.count = woven->count;
        const int32_t end = woven->first + woven->count;
        for (int32_t p = woven->first; p < end; p++)
          depend(step, holder[static_cast<size_t>(p)], number);
        if (woven->in >= 0) {
          step.from.push_back(peer(plan, channels, woven->in, true));
          if (pieces_.needed(woven->first, rank))
            step.to.push_back(output(woven->first));
          else if (scratch.has(woven->first))
            step.to.push_back(scratch.at(woven->first));
        } else {
          step.from.push_back(held(woven->first));
          if (woven->begins && !all_reduce && pieces_.needed(woven->first, rank))
            step.to.push_back(output(woven->first));
        }
        for (const int32_t f : woven->outs) step.to.push_back(peer(plan, channels, f, false));
        if (step.to.empty() && woven->in < 0) continue;
        if (step.to.empty())
          fail(ncclInvalidUsage, "rank {} gets piece {}, which it neither needs nor passes on",
               rank, woven->first);
        lane.steps.push_back(std::move(step));
        if (woven->in >= 0)
          for (int32_t p = woven->first; p < end; p++)
            holder[static_cast<size_t>(p)] = {number, static_cast<int32_t>(lane.steps.size()) - 1};
      }
      drop_empty(mine);
    }
  }

  // Removes lanes without steps and renumbers dependencies.
  static std::vector<int32_t> drop_empty(RankSchedule& rank) {
    std::vector<int32_t> number(rank.lanes.size(), -1);
    int32_t next = 0;
    for (size_t l = 0; l < rank.lanes.size(); l++)
      if (!rank.lanes[l].steps.empty()) number[l] = next++;
    rank.lanes.erase(std::remove_if(rank.lanes.begin(), rank.lanes.end(),
                                    [](const Lane& lane) { return lane.steps.empty(); }),
                     rank.lanes.end());
    for (Lane& lane : rank.lanes)
      for (Step& step : lane.steps)
        for (Dependency& d : step.after) d.lane = number[static_cast<size_t>(d.lane)];
    return number;
  }

  // The mirror of gather(): a step receives from the children that gather() sends to, and sends to
  // where gather() receives from. All steps are in the opposite order.
  void reduce(const WovenPlan& plan) {
    const std::vector<int16_t> channels = number_channels(plan.fifos, true);
    for (size_t r = 0; r < plan.lanes.size(); r++) {
      const auto rank = static_cast<int32_t>(r);
      RankSchedule& mine = schedule_.ranks[r];
      mine.lanes.resize(plan.lanes[r].size());
      Scratch scratch;
      const bool outputs = kind_ == CollectiveKind::kAllReduce;
      for (const auto& lane : plan.lanes[r])
        for (const WovenStep& step : lane)
          for (int32_t p = step.first; !step.begins && p < step.first + step.count; p++)
            if (!outputs && pieces_.origin(p) != rank) scratch.kept.push_back(p);
      scratch.finish();
      mine.scratch_chunks = static_cast<int32_t>(scratch.kept.size());
      const auto sum = [&](int32_t piece) {
        return outputs || pieces_.origin(piece) == rank ? output(piece) : scratch.at(piece);
      };
      std::vector<Place>& last = last_[r];  // the step that has written the sum of a piece
      last.assign(static_cast<size_t>(pieces_.count()), {});
      const std::vector<PlacedStep> ordered = in_run_order(plan.lanes[r]);
      for (auto placed = ordered.rbegin(); placed != ordered.rend(); placed++) {
        const WovenStep& woven = *placed->step;
        Lane& lane = mine.lanes[static_cast<size_t>(placed->lane)];
        const int32_t end = woven.first + woven.count;
        Step step;
        step.count = woven.count;
        for (const int32_t f : woven.outs) step.from.push_back(peer(plan, channels, f, false));
        // The sum so far, or the rank's own input.
        const bool begun = last[static_cast<size_t>(woven.first)].lane >= 0;
        step.from.push_back(begun ? sum(woven.first) : input(woven.first));
        for (int32_t p = woven.first; p < end; p++)
          depend(step, last[static_cast<size_t>(p)], placed->lane);
        if (woven.in >= 0)
          step.to.push_back(peer(plan, channels, woven.in, true));
        else
          step.to.push_back(sum(woven.first));
        // The whole sum may be in place already.
        if (step.from.size() == 1 && step.from[0] == step.to[0]) continue;
        lane.steps.push_back(std::move(step));
        for (int32_t p = woven.first; p < end; p++)
          last[static_cast<size_t>(p)] = {placed->lane,
                                          static_cast<int32_t>(lane.steps.size()) - 1};
      }
      const std::vector<int32_t> number = drop_empty(mine);
      for (Place& place : last)
        if (place.lane >= 0) place.lane = number[static_cast<size_t>(place.lane)];
    }
  }

  static Operand peer(const WovenPlan& plan, const std::vector<int16_t>& channels, int32_t fifo,
                      bool from) {
    const WovenFifo& f = plan.fifos[static_cast<size_t>(fifo)];
    return Operand::peer(from ? f.from : f.to, channels[static_cast<size_t>(fifo)]);
  }

  const Routing& routing_;
  const WeaveOptions& options_;
  const CollectiveKind kind_;
  Pieces pieces_;
  Schedule schedule_;
  std::map<std::pair<int32_t, int32_t>, int16_t> channels_;
  std::vector<std::vector<Place>> last_;  // per rank and piece: the last step of the reduction
};

}  // namespace

Schedule weave(const Routing& routing, const WeaveOptions& options) {
  if (routing.collective.nranks < 1 || routing.chunks < 1)
    fail(ncclInvalidUsage, "{} ranks, {} chunks", routing.collective.nranks, routing.chunks);
  return Weaver(routing, options).run();
}

WeaveOptions tight_weaving(const Machine& machine) {
  WeaveOptions options;
  options.machine = &machine;
  options.fuse = false;
  options.ports = true;
  return options;
}

}  // namespace weft
