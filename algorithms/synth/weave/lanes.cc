// See lanes.h.
#include "algorithms/synth/weave/lanes.h"

#include <algorithm>
#include <unordered_map>

namespace weft {
namespace {

// Messages that wait in a FIFO do not hold up a lane.
constexpr size_t kPatience = 8;

class LaneChooser {
 public:
  LaneChooser(WovenMessages& formed, size_t ranks, const LaneOptions& options)
      : fifos_(formed.fifos),
        messages_(formed.messages),
        starts_(formed.starts),
        machine_(options.machine),
        budget_(options.budget),
        fuse_(options.fuse),
        ports_(options.ports),
        whole_trees_(options.whole_trees),
        shared_(options.shared),
        mirrored_(options.mirrored_ports()),
        ranks_(ranks) {}

  ChosenLanes run() {
    choose_lanes();
    ChosenLanes chosen{{}, std::move(lane_of_in_), std::move(lane_of_out_)};
    for (const auto& lanes : rank_lanes_) chosen.count.push_back(lanes.size());
    return chosen;
  }

 private:
  // A lane that receives from one FIFO (or has the rank's own pieces), and its load.
  struct LaneLoad {
    int32_t source = -1;        // FIFO, -1: the rank's own pieces
    std::vector<int32_t> outs;  // FIFOs that this lane sends to
    double busy = 0;
  };

  void choose_lanes() {
    rank_lanes_.resize(ranks_);
    lane_of_in_.assign(fifos_.size(), -1);
    lane_of_out_.assign(fifos_.size(), -1);
    sent_by_.resize(fifos_.size());
    for (size_t i = 0; i < messages_.size(); i++)
      sent_by_[static_cast<size_t>(messages_[i].fifo)].push_back(static_cast<int32_t>(i));
    std::vector<std::vector<int32_t>> incoming(ranks_), outgoing(ranks_);
    for (size_t f = 0; f < fifos_.size(); f++) {
      incoming[static_cast<size_t>(fifos_[f].to)].push_back(static_cast<int32_t>(f));
      outgoing[static_cast<size_t>(fifos_[f].from)].push_back(static_cast<int32_t>(f));
    }
    for (size_t r = 0; r < ranks_; r++) {
      auto& lanes = rank_lanes_[r];
      lanes.push_back({});
      for (const int32_t f : incoming[r]) {
        const int32_t lane = mirrored_ ? port_lane(r, f, true) : -1;
        lane_of_in_[static_cast<size_t>(f)] = lane < 0 ? static_cast<int32_t>(lanes.size()) : lane;
        if (lane < 0) lanes.push_back({f, {}, 0});
      }
      for (const int32_t f : outgoing[r]) {
        const int32_t lane = fuse_                                  ? best_lane(r, f)
                             : ports_ && (!whole_trees_ || shared_) ? port_lane(r, f, false)
                                                                    : -1;
        if (lane < 0) {
          lane_of_out_[static_cast<size_t>(f)] = static_cast<int32_t>(lanes.size());
          lanes.push_back({-2, {f}, 0});
          continue;
        }
        lane_of_out_[static_cast<size_t>(f)] = lane;
      }
    }
    place_starts();
    for (WovenMessage& m : messages_) {
      if (m.parent < 0) continue;
      const int32_t lane = m.own() ? starts_[static_cast<size_t>(m.parent)].lane : source_lane(m);
      m.fused = fuse_ && lane_of_out_[static_cast<size_t>(m.fifo)] == lane;
    }
  }

  // The lane of a FIFO that leaves, or arrives, over the same link; -1 if there is none yet. A
  // shared lane keeps the intended order on the link.
  int32_t port_lane(size_t rank, int32_t fifo, bool arriving) const {
    const auto& lanes = rank_lanes_[rank];
    const WovenFifo& mine = fifos_[static_cast<size_t>(fifo)];
    for (size_t l = 0; l < lanes.size() && !mine.links.empty(); l++) {
      if (arriving ? lanes[l].source < 0 : lanes[l].source != -2) continue;
      const WovenFifo& other =
          fifos_[static_cast<size_t>(arriving ? lanes[l].source : lanes[l].outs[0])];
      if (!other.links.empty() && other.group == mine.group &&
          (arriving ? other.links.back() == mine.links.back()
                    : other.links.front() == mine.links.front()))
        return static_cast<int32_t>(l);
    }
    return -1;
  }

  // A rank's own pieces can begin in any lane: in the one that sends most of them.
  void place_starts() {
    std::vector<std::vector<int32_t>> sent(starts_.size());
    for (const WovenMessage& m : messages_)
      if (m.own() && m.parent >= 0)
        sent[static_cast<size_t>(m.parent)].push_back(lane_of_out_[static_cast<size_t>(m.fifo)]);
    std::vector<int32_t> usual(ranks_, 0);
    for (size_t i = 0; i < starts_.size(); i++) {
      auto& lanes = sent[i];
      std::sort(lanes.begin(), lanes.end());
      size_t most = 0;
      for (size_t begin = 0, end = 0; begin < lanes.size(); begin = end) {
        while (end < lanes.size() && lanes[end] == lanes[begin]) end++;
        if (end - begin <= most) continue;
        most = end - begin;
        starts_[i].lane = lanes[begin];
        usual[static_cast<size_t>(starts_[i].rank)] = lanes[begin];
      }
    }
    for (size_t i = 0; i < starts_.size(); i++)
      if (sent[i].empty()) starts_[i].lane = usual[static_cast<size_t>(starts_[i].rank)];
  }

  int32_t source_lane(const WovenMessage& m) const {
    return m.own() ? 0 : lane_of_in_[static_cast<size_t>(m.source)];
  }

  // The lane that could pass on most of the FIFO's messages, if it has the time.
  int32_t best_lane(size_t rank, int32_t fifo) {
    auto& lanes = rank_lanes_[rank];
    std::vector<int32_t> votes(lanes.size(), 0);
    for (const int32_t m : sent_by_[static_cast<size_t>(fifo)])
      if (const WovenMessage& message = messages_[static_cast<size_t>(m)]; message.parent >= 0)
        votes[static_cast<size_t>(source_lane(message))] += message.count;
    const auto best = std::max_element(votes.begin(), votes.end());
    if (*best == 0) return -1;
    const auto index = static_cast<int32_t>(best - votes.begin());
    LaneLoad& lane = lanes[static_cast<size_t>(index)];
    // A message waits for its link, and its lane waits too. So one lane serves one link, not two.
    if (!lane.outs.empty() && first_link(lane.outs[0]) != first_link(fifo)) return -1;
    lane.outs.push_back(fifo);
    const double busy = busy_time(lane, index);
    if (busy > budget_ * 1.02) {
      lane.outs.pop_back();
      return -1;
    }
    lane.busy = busy;
    return index;
  }

  int32_t first_link(int32_t fifo) const {
    const auto& links = fifos_[static_cast<size_t>(fifo)].links;
    return links.empty() ? -1 - fifo : links.front();
  }

  // A step is busy until its data has left over the links next to the GPU. A step that only
  // receives is busy while the data arrives, except for messages that wait in the FIFO.
  double busy_time(const LaneLoad& lane, int32_t index) const {
    std::unordered_map<int32_t, std::vector<std::pair<int32_t, double>>> by_parent;
    double busy = 0;
    for (const int32_t f : lane.outs) {
      const int32_t link = first_link(f);
      const double cost = link < 0 ? 1.0 : seconds_per_byte(machine_, link);
      for (const int32_t m : sent_by_[static_cast<size_t>(f)]) {
        const WovenMessage& message = messages_[static_cast<size_t>(m)];
        if (message.parent < 0 || source_lane(message) != index) {
          busy += cost * message.count;
          continue;
        }
        auto& step = by_parent[message.parent];
        const auto same = std::find_if(step.begin(), step.end(),
                                       [&](const auto& entry) { return entry.first == link; });
        if (same == step.end())
          step.emplace_back(link, cost * message.count);
        else
          same->second += cost * message.count;
      }
    }
    for (const auto& [parent, step] : by_parent) {
      double longest = 0;
      for (const auto& [link, time] : step) longest = std::max(longest, time);
      busy += longest;
    }
    if (lane.source < 0) return busy;
    const auto& received = sent_by_[static_cast<size_t>(lane.source)];
    size_t waits = 0;
    for (const int32_t m : received)
      if (by_parent.count(m) == 0 && ++waits > kPatience) {
        double slowest = 0;
        for (const int32_t l : fifos_[static_cast<size_t>(lane.source)].links)
          slowest = std::max(slowest, seconds_per_byte(machine_, l));
        busy += slowest * messages_[static_cast<size_t>(m)].count;
      }
    return busy;
  }

  const std::vector<WovenFifo>& fifos_;
  std::vector<WovenMessage>& messages_;
  std::vector<WovenStart>& starts_;
  const Machine* machine_;
  const double budget_;
  const bool fuse_, ports_, whole_trees_, shared_, mirrored_;
  const size_t ranks_;
  std::vector<std::vector<LaneLoad>> rank_lanes_;
  std::vector<int32_t> lane_of_in_, lane_of_out_;  // per FIFO
  std::vector<std::vector<int32_t>> sent_by_;      // per FIFO, messages in order
};

}  // namespace

ChosenLanes choose_lanes(WovenMessages& formed, size_t ranks, const LaneOptions& options) {
  return LaneChooser(formed, ranks, options).run();
}

}  // namespace weft
