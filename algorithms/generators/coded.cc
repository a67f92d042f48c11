// See coded.h. Takes a hierarchical schedule and codes its messages between hosts.
#include "algorithms/generators/coded.h"

#include "algorithms/generators/building.h"
#include "algorithms/generators/hierarchical.h"
#include "algorithms/generators/host_map.h"

namespace weft {
namespace {

constexpr uint8_t kCodec = 1;  // the only one

class Coder {
 public:
  Coder(Schedule& schedule, const HostMap& map, const CodecSpec& spec)
      : schedule_(schedule), map_(map), lossy_(spec.lossy()) {}

  void code() {
    for (int r = 0; r < schedule_.collective.nranks; r++)
      for (Lane& lane : schedule_.ranks[static_cast<size_t>(r)].lanes) {
        for (Step& step : lane.steps) code_step(r, step);
        if (!schedule_.collective.reduces()) share_what_others_see(r, lane);
      }
  }

 private:
  bool crosses(int r, const Operand& operand) const {
    return operand.kind == Operand::Kind::kPeer && map_.host_of(r) != map_.host_of(operand.index);
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

  Schedule& schedule_;
  const HostMap& map_;
  const bool lossy_;
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

Schedule make_coded(const Collective& c, std::span<const int> hosts, const CodecSpec& spec) {
  Schedule schedule = make_hierarchical_direct(c, hosts, spec.lossy());
  schedule.name = "hierarchical+" + describe(spec);
  schedule.codecs = {spec};
  Coder(schedule, HostMap(hosts), spec).code();
  return schedule;
}

}  // namespace weft
