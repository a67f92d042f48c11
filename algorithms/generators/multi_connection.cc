// For few ranks on different hosts whose lanes are thread blocks: the shortest schedules, in
// several instances. Each instance has its own part of the data, its own lanes and its own
// channels. So it has its own connections, and several threads serve them. Lanes that send do not
// wait for data, so slices follow each other closely.
#include <algorithm>

#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"

namespace weft {
namespace {

// With more ranks there are enough lanes, and all of them must fit on a GPU that ranks share.
constexpr int kMostMultiConnectionRanks = 4, kMostChannels = 4;

bool supports_multi_connection(const Collective& c) {
  return c.kind != CollectiveKind::kSendRecv && c.nranks >= 2 &&
         c.nranks <= kMostMultiConnectionRanks;
}

// Two ranks: as many bytes as with two phases, in half the hops.
Schedule swap_and_reduce(const Collective& c, bool in_place) {
  Schedule s = blank("multi_connection", c, 1, 2);
  for (int r = 0; r < 2; r++) {
    auto& lanes = s.ranks[static_cast<size_t>(r)].lanes;
    const int sent = add(lanes[0], {Operand::input(0)}, {Operand::peer(1 - r)});
    std::vector<Dependency> after;
    if (in_place) after.push_back({0, sent});
    add(lanes[1], in_rank_order(r, 2, Operand::input(0)), {Operand::output(0)}, 1,
        std::move(after));
  }
  return s;
}

// `direct` receives all sums in its last lane. Gives each sum its own lane, so that none waits for
// a later one.
void receive_in_parallel(Schedule& s) {
  for (RankSchedule& rank : s.ranks) {
    const std::vector<Step> steps = std::move(rank.lanes.back().steps);
    rank.lanes.pop_back();
    for (const Step& step : steps) rank.lanes.emplace_back().steps = {step};
  }
}

Schedule narrow(const Collective& c, bool in_place) {
  const bool reduces_all = c.kind == CollectiveKind::kAllReduce;
  if (reduces_all && c.nranks == 2) return swap_and_reduce(c, in_place);
  const bool chain = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kReduce;
  Schedule s = (chain ? kRing : kDirect).make(c, in_place);
  if (reduces_all) receive_in_parallel(s);
  return s;
}

int channels_of(const Schedule& s) {
  int most = 0;
  for (const RankSchedule& rank : s.ranks)
    for (const Lane& lane : rank.lanes)
      for (const Step& step : lane.steps)
        for (const auto* operands : {&step.from, &step.to})
          for (const Operand& operand : *operands) most = std::max<int>(most, operand.channel);
  return most + 1;
}

// Instance k of n of a step with one chunk and no scratch: part k of every block, as if it were the
// block.
Step part_of(Step step, int k, int n, int chunks, int channels, int lanes) {
  for (auto* operands : {&step.from, &step.to})
    for (Operand& operand : *operands) {
      if (operand.kind == Operand::Kind::kPeer) {
        operand.channel = static_cast<int16_t>(operand.channel + k * channels);
      } else {
        const int block = operand.index / chunks, sub = operand.index % chunks;
        operand.index = (block * n + k) * chunks + sub;
      }
    }
  for (Dependency& dependency : step.after) dependency.lane += k * lanes;
  return step;
}

Schedule make_multi_connection(const Collective& c, bool in_place) {
  const Schedule one = narrow(c, in_place);
  const int channels = channels_of(one), instances = kMostChannels / channels;
  Schedule s = blank("multi_connection", c, one.chunks * instances, 0);
  for (size_t r = 0; r < s.ranks.size(); r++) {
    const auto& lanes = one.ranks[r].lanes;
    for (int k = 0; k < instances; k++)
      for (const Lane& lane : lanes) {
        Lane& mine = s.ranks[r].lanes.emplace_back();
        for (const Step& step : lane.steps)
          mine.steps.push_back(
              part_of(step, k, instances, one.chunks, channels, static_cast<int>(lanes.size())));
      }
  }
  return s;
}

}  // namespace

const Generator kMultiConnection = {"multi_connection",
                                    "several instances side by side: GPUs of few hosts",
                                    supports_multi_connection,
                                    make_multi_connection,
                                    false,
                                    kMostChannels};

}  // namespace weft
