// See coded.h. Takes a hierarchical schedule and codes its messages between hosts.
#include "algorithms/generators/coded.h"

#include <algorithm>
#include <iterator>

#include "algorithms/generators/building.h"
#include "algorithms/generators/hierarchical.h"
#include "algorithms/generators/host_map.h"

namespace weft {
namespace {

constexpr uint8_t kCodec = 1;  // the only one

class Coder {
 public:
  Coder(Schedule& schedule, const HostMap& map, const CodecSpec& spec, std::span<const int> near)
      : schedule_(schedule), map_(map), lossy_(spec.lossy()), near_(near) {}

  void code() {
    for (int r = 0; r < schedule_.collective.nranks; r++) {
      RankSchedule& rank = schedule_.ranks[static_cast<size_t>(r)];
      for (Lane& lane : rank.lanes)
        for (Step& step : lane.steps) code_step(r, step);
      for (size_t l = 0; l < rank.lanes.size(); l++)
        if (!schedule_.collective.reduces())
          share_what_others_see(r, rank.lanes[l]);
        else if (!near_.empty())
          share_results(r, rank, static_cast<int>(l));
    }
  }

 private:
  // Over a link whose messages are coded.
  bool crosses(int r, const Operand& operand) const {
    if (operand.kind != Operand::Kind::kPeer) return false;
    const auto me = static_cast<size_t>(r), peer = static_cast<size_t>(operand.index);
    return map_.host_of(r) != map_.host_of(operand.index) &&
           (near_.empty() || near_[me] != near_[peer]);
  }

  void code_step(int r, Step& step) const {
    bool sends = false;
    for (Operand& from : step.from)
      if (is_coded(r, from)) from.codec = kCodec;
    for (Operand& to : step.to)
      if (is_coded(r, to)) {
        to.codec = kCodec;
        sends = true;
      }
    // This rank goes on with what others see.
    if (!sends || !lossy_ || !schedule_.collective.reduces()) return;
    for (Operand& to : step.to)
      if (to.kind == Operand::Kind::kLocal) to.codec = kCodec;
  }

  // Results are values of the call's type, which no wide message makes better.
  bool is_coded(int r, const Operand& operand) const {
    return crosses(r, operand) && (lossy_ || operand.channel == 0);
  }

  // An owner keeps its block exact. Its neighbours get what other hosts get.
  void share_what_others_see(int r, Lane& lane) const {
    const auto neighbour = [&](const Operand& to) {
      return to.kind == Operand::Kind::kPeer && !crosses(r, to);
    };
    std::vector<Step> steps;
    for (Step& step : lane.steps) {
      Step shared = step;
      if (step.from[0] == Operand::input(0)) {
        std::erase_if(step.to, neighbour);
        std::erase_if(shared.to, [&](const Operand& to) { return !neighbour(to); });
        shared.from[0].codec = kCodec;
        if (!shared.to.empty()) steps.push_back(std::move(shared));
      }
      if (!step.to.empty()) steps.push_back(std::move(step));
    }
    lane.steps = std::move(steps);
  }

  // A result that is coded for some hosts goes to near ones from the place where this rank keeps
  // it, as the others see it.
  void share_results(int r, RankSchedule& rank, int lane) const {
    std::vector<Step> steps;
    std::vector<int> moved;  // the new number of every step
    for (Step& step : rank.lanes[static_cast<size_t>(lane)].steps) {
      moved.push_back(static_cast<int>(steps.size()));
      const auto is_coded = [](const Operand& to) { return to.codec == kCodec; };
      const auto near = [&](const Operand& to) {
        return to.kind == Operand::Kind::kPeer && !crosses(r, to);
      };
      Step shared;
      shared.count = step.count;
      if (std::any_of(step.to.begin(), step.to.end(), is_coded))
        std::copy_if(step.to.begin(), step.to.end(), std::back_inserter(shared.to), near);
      if (!shared.to.empty()) {
        std::erase_if(step.to, near);
        shared.from = {kept(step)};
      }
      steps.push_back(std::move(step));
      if (!shared.to.empty()) steps.push_back(std::move(shared));
    }
    rank.lanes[static_cast<size_t>(lane)].steps = std::move(steps);
    for (Lane& other : rank.lanes)
      for (Step& step : other.steps)
        for (Dependency& d : step.after)
          if (d.lane == lane) d.step = moved[static_cast<size_t>(d.step)];
  }
  static Operand kept(const Step& step) {
    Operand kept = *std::find_if(step.to.begin(), step.to.end(), [](const Operand& to) {
      return to.kind == Operand::Kind::kLocal;
    });
    kept.codec = 0;
    return kept;
  }

  Schedule& schedule_;
  const HostMap& map_;
  const bool lossy_;
  const std::span<const int> near_;
};

}  // namespace

std::string why_not_coded(const Collective& c, std::span<const int> hosts, const CodecSpec& spec) {
  if (c.kind != CollectiveKind::kAllReduce && c.kind != CollectiveKind::kAllGather &&
      c.kind != CollectiveKind::kReduceScatter)
    return "only all_reduce, all_gather and reduce_scatter are compressed";
  if (!c.reduces() && !spec.lossy()) return "widen is for sums";
  const HostMap map(hosts);
  if (map.hosts() < 2) return "all ranks are on one host, and only links between hosts are";
  if (map.hosts() >= kMostReducedRanks || map.most >= kMostReducedRanks)
    return "there are more than 63 hosts, or more than 63 ranks on one";
  return "";
}

Schedule make_coded(const Collective& c, std::span<const int> hosts, const CodecSpec& spec,
                    std::span<const int> near) {
  Schedule schedule = make_hierarchical_direct(c, hosts, spec.lossy());
  schedule.name = "hierarchical+" + describe(spec) + (near.empty() ? "" : "+near");
  schedule.codecs = {spec};
  Coder(schedule, HostMap(hosts), spec, near).code();
  return schedule;
}

}  // namespace weft
