// See schedule_shape.h.
#include "src/planner/schedule_shape.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/simulator/simulator.h"

namespace weft {
namespace {

// Runs all steps in a possible order and finds the longest chains of messages.
class ChainSearch {
 public:
  ChainSearch(const ScheduleGraph& graph, std::span<const int> hosts)
      : graph_(graph), hosts_(hosts), chains_(graph.steps.size()), next_(graph.lanes.size(), 0) {}

  struct Chain {
    int hops = 0, net_hops = 0;
    void extend(const Chain& other, int more, int more_net) {
      hops = std::max(hops, other.hops + more);
      net_hops = std::max(net_hops, other.net_hops + more_net);
    }
  };

  Chain longest() {
    size_t left = graph_.steps.size();
    for (bool moved = true; left > 0 && moved;) {
      moved = false;
      for (size_t l = 0; l < graph_.lanes.size(); l++)
        while (next_[l] < graph_.lanes[l].size && advance(l)) {
          moved = true;
          left--;
        }
    }
    if (left > 0)
      fail(ncclInvalidUsage, "schedule '{}' gets stuck: steps wait for each other in a circle",
           graph_.schedule.name);
    Chain longest;
    for (const Chain& chain : chains_) longest.extend(chain, 0, 0);
    return longest;
  }

 private:
  // Runs the lane's next step if all its waits are over.
  bool advance(size_t l) {
    const ScheduleGraph::LaneRef& lane = graph_.lanes[l];
    const auto n = static_cast<size_t>(lane.first_step + next_[l]);
    const Step& step = *graph_.steps[n];
    Chain chain;
    if (next_[l] > 0) chain = chains_[n - 1];
    for (const Dependency& d : step.after) {
      const auto other =
          static_cast<size_t>(graph_.first_lane[static_cast<size_t>(lane.rank)] + d.lane);
      if (next_[other] <= d.step) return false;
      chain.extend(chains_[static_cast<size_t>(graph_.lanes[other].first_step + d.step)], 0, 0);
    }
    for (size_t i = 0; i < step.from.size(); i++) {
      const size_t operand = static_cast<size_t>(graph_.first_operand[n]) + i;
      const int32_t fifo = graph_.operand_fifo[operand];
      if (fifo < 0) continue;
      const ScheduleGraph::Fifo& f = graph_.fifos[static_cast<size_t>(fifo)];
      const int32_t sender =
          graph_.senders[static_cast<size_t>(f.first_message + graph_.operand_message[operand])];
      if (sender < 0) continue;
      const auto from = static_cast<size_t>(graph_.step_lane[static_cast<size_t>(sender)]);
      if (graph_.lanes[from].first_step + next_[from] <= sender) return false;
      const bool net = !hosts_.empty() && hosts_[static_cast<size_t>(f.source)] !=
                                              hosts_[static_cast<size_t>(f.destination)];
      chain.extend(chains_[static_cast<size_t>(sender)], net ? 0 : 1, net ? 1 : 0);
    }
    chains_[n] = chain;
    next_[l]++;
    return true;
  }

  const ScheduleGraph& graph_;
  const std::span<const int> hosts_;
  std::vector<Chain> chains_;
  std::vector<int32_t> next_;
};

bool is_peer(const Operand& o) { return o.kind == Operand::Kind::kPeer; }

void count_step(const Step& step, int rank, std::span<const int> hosts, RankShape& shape,
                int& channels) {
  shape.steps++;
  const auto host = [&](int r) { return hosts.empty() ? 0 : hosts[static_cast<size_t>(r)]; };
  double peers = 0, net_sends = 0, locals = 0;
  for (const bool sends : {false, true})
    for (const Operand& o : sends ? step.to : step.from) {
      if (!is_peer(o)) {
        locals += sends ? 1 : 0;
        shape.touched += step.count;
        continue;
      }
      shape.passed += step.count;
      channels = std::max(channels, o.channel + 1);
      if (host(o.index) == host(rank)) {
        shape.messages++;
        peers += sends ? 1 : 0;
      } else {
        shape.net_messages++;
        shape.net_chunks += step.count;
        net_sends += sends ? 1 : 0;
      }
    }
  // A result in memory can be lent. A sum that only passes through is in no memory.
  const bool lends = locals > 0 || (step.from.size() == 1 && !is_peer(step.from[0]));
  const double writes = locals + peers + (lends ? 0 : net_sends);
  const double lending = lends ? locals : writes;
  if (step.from.size() > 1) {
    shape.reduced += step.count * static_cast<double>(step.from.size());
    shape.copied += step.count * std::max(0.0, writes - 1);
    shape.copied_lending += step.count * std::max(0.0, lending - 1);
  } else {
    shape.copied += step.count * writes;
    shape.copied_lending += step.count * lending;
  }
}

}  // namespace

ScheduleShape shape_of(const Schedule& schedule, std::span<const int> hosts) {
  return shape_of(step_graph(schedule), hosts);
}

ScheduleShape shape_of(const ScheduleGraph& graph, std::span<const int> hosts) {
  const Schedule& schedule = graph.schedule;
  ScheduleShape shape;
  shape.chunks = schedule.chunks;
  shape.ranks.resize(schedule.ranks.size());
  for (size_t r = 0; r < schedule.ranks.size(); r++) {
    const auto& lanes = schedule.ranks[r].lanes;
    shape.lanes = std::max(shape.lanes, static_cast<int>(lanes.size()));
    for (const Lane& lane : lanes)
      for (const Step& step : lane.steps)
        count_step(step, static_cast<int>(r), hosts, shape.ranks[r], shape.channels);
  }
  const auto chain = ChainSearch(graph, hosts).longest();
  shape.hops = chain.hops;
  shape.net_hops = chain.net_hops;
  return shape;
}

}  // namespace weft
