// Compares the simulator with closed forms, and checks invariants of every simulation.
#include "src/simulator/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "algorithms/bounds/bounds.h"
#include "algorithms/generators/building.h"
#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/base/parallel_for.h"
#include "src/simulator/event_queue.h"
#include "tests/simulator/machines.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

constexpr double kWhole = 1e18;  // as slice size: nothing is sliced

SimulationOptions sliced(double bytes, int fifo_depth = 8) {
  SimulationOptions options;
  options.slice_bytes = bytes;
  options.fifo_depth = fifo_depth;
  options.record = true;
  return options;
}

Schedule generated(const Generator& generator, CollectiveKind kind, int n, int root = 0) {
  return generator.make({kind, n, root}, false);
}

TEST(EventQueue, GivesEventsByTimeAndThoseOfOneTimeInTheOrderTheyCame) {
  EventQueue queue;
  Random random(mix(test_seed(), 5));
  struct Pushed {
    double at;
    uint32_t subject;
  };
  std::vector<Pushed> waiting;
  double now = 0;
  for (uint32_t n = 0; n < 3000 || !queue.empty(); n++) {
    // Few different times, as on regular machines, and many.
    if (n < 3000) {
      const auto steps = static_cast<double>(random.next() % 8);
      const double at = now + (random.next() % 2 == 0 ? steps : steps * 0.37 + 1e-3 / (n + 1));
      queue.push(at, n);
      waiting.push_back({at, n});
    }
    if (n < 3000 && random.next() % 3 == 0) continue;
    const auto first =
        std::min_element(waiting.begin(), waiting.end(), [](const Pushed& a, const Pushed& b) {
          return std::pair(a.at, a.subject) < std::pair(b.at, b.subject);
        });
    if (first == waiting.end()) continue;
    const Event event = queue.pop();
    ASSERT_EQ(event.at, first->at);
    ASSERT_EQ(event.subject, first->subject);
    now = event.at;
    waiting.erase(first);
  }
  EXPECT_TRUE(waiting.empty());
  EXPECT_EQ(queue.pushed(), 3000u);
}

TEST(ParallelFor, DoesEveryPieceOnceAndThrowsWhatAPieceThrew) {
  std::vector<std::atomic<int>> done(1000);
  parallel_for(done.size(), [&] { return [&](size_t i) { done[i]++; }; });
  for (const auto& count : done) EXPECT_EQ(count, 1);
  const auto failing = [] {
    return [](size_t i) {
      if (i == 3) fail(ncclInvalidUsage, "the fourth");
    };
  };
  EXPECT_THROW(parallel_for(10, failing), Error);
  parallel_for(0, failing);
}

// 1 GB/s is 1000 bytes per us.
TEST(Simulator, TakesLatencyAndBytesOverBandwidthForOneMessage) {
  const Machine m = line(2, 10, 1.5);
  const Simulation s =
      simulate(m, generated(kSendRecv, CollectiveKind::kSendRecv, 2), 20000, sliced(kWhole));
  EXPECT_NEAR(s.time_us, 1.5 + 2, 1e-9);
  EXPECT_NEAR(s.algbw_gbps, 20000 / 3.5 / 1000, 1e-9);
  ASSERT_EQ(s.links.size(), 1u);
  EXPECT_EQ(link_name(m, s.links[0].link), "g0->g1");
  EXPECT_NEAR(s.links[0].busy_us, 2, 1e-9);
  EXPECT_EQ(s.links[0].bytes, 20000);
}

TEST(Simulator, CutsThroughSwitchesAtTheSpeedOfTheSlowestLink) {
  // Slow to fast, fast to slow, and both. The time is always all latencies plus the slowest link.
  for (const double first : {5.0, 20.0, 80.0})
    for (const double second : {5.0, 20.0, 80.0})
      for (const double third : {5.0, 20.0, 80.0}) {
        Machine m;
        for (const char* id : {"g0", "g1"}) add_node(m, id, NodeType::kGpu);
        const int a = add_node(m, "a", NodeType::kSwitch), b = add_node(m, "b", NodeType::kSwitch);
        add_link(m, 0, a, first, 0.5);
        add_link(m, a, b, second, 1);
        add_link(m, b, 1, third, 2);
        const Simulation s =
            simulate(m, generated(kSendRecv, CollectiveKind::kSendRecv, 2), 1e6, sliced(kWhole));
        EXPECT_NEAR(s.time_us, 3.5 + 1e3 / std::min({first, second, third}), 1e-9);
      }
}

TEST(Simulator, EqualsTheClosedFormOfARing) {
  for (const int n : {2, 3, 8, 16}) {
    const Machine m = circle(n, 25, 0.7);
    const double bytes = 1e6, hop = 0.7 + bytes / n / 25e3;
    for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter})
      EXPECT_NEAR(simulate(m, generated(kRing, kind, n), bytes, sliced(kWhole)).time_us,
                  (n - 1) * hop, 1e-6)
          << name(kind) << " of " << n;
    EXPECT_NEAR(
        simulate(m, generated(kRing, CollectiveKind::kAllReduce, n), bytes, sliced(kWhole)).time_us,
        2 * (n - 1) * hop, 1e-6);
  }
}

TEST(Simulator, EqualsTheClosedFormOfAPipelinedChainBroadcast) {
  const int n = 6;
  const double bytes = 1 << 20, gbps = 12.5, us = 1.3;
  const Machine m = line(n, gbps, us);
  for (const int slices : {1, 2, 7, 64}) {
    const Simulation s =
        simulate(m, generated(kRing, CollectiveKind::kBroadcast, n), bytes, sliced(bytes / slices));
    EXPECT_EQ(s.slices, slices);
    EXPECT_NEAR(s.time_us, (n - 1) * us + (n - 2 + slices) * (bytes / slices) / gbps * 1e-3, 1e-6);
  }
}

TEST(Simulator, EqualsTheClosedFormOfADirectExchange) {
  const int n = 8;
  const double bytes = 8e6, part = bytes / n;
  // Each pair has its own cable, so all messages go at once.
  EXPECT_NEAR(simulate(mesh(n, 20, 1), generated(kDirect, CollectiveKind::kAllGather, n), bytes,
                       sliced(kWhole))
                  .time_us,
              1 + part / 20e3, 1e-6);
  // There is one port to the switch, so messages go one after the other.
  const Machine one_switch = switched({.gpus = n, .switch_gbps = 100, .switch_us = 0.35});
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kAllToAll})
    EXPECT_NEAR(simulate(one_switch, generated(kDirect, kind, n), bytes, sliced(kWhole)).time_us,
                0.7 + (n - 1) * part / 100e3, 1e-6)
        << name(kind);
}

// A tree of cables, and the binomial broadcast along it. More slices come nearer to the bound.
TEST(Simulator, ConvergesToTheBoundForAPipelinedTree) {
  const int n = 16;
  Machine m;
  for (int g = 0; g < n; g++) add_node(m, "g" + std::to_string(g), NodeType::kGpu);
  for (int v = 1; v < n; v++) add_cable(m, v & (v - 1), v, 50, 0.5);
  const Schedule tree = generated(kTree, CollectiveKind::kBroadcast, n);
  const double bound = throughput_bound(m, tree.collective).algbw_gbps;
  EXPECT_NEAR(bound, 50, 1e-9);
  const double bytes = 256e6;
  double last = 0;
  for (const int slices : {1, 4, 16, 64, 256}) {
    const Simulation s = simulate(m, tree, bytes, sliced(bytes / slices));
    EXPECT_GT(s.algbw_gbps, last);
    EXPECT_LE(s.algbw_gbps, bound * (1 + 1e-9));
    last = s.algbw_gbps;
  }
  EXPECT_GT(last, 0.985 * bound);
}

TEST(Simulator, LetsMessagesThatShareALinkWaitForEachOther) {
  // Two senders and one receiver. Its port takes one message after the other.
  const Machine m = switched({.gpus = 3, .switch_gbps = 10});
  const Schedule s = generated(kDirect, CollectiveKind::kGather, 3);
  EXPECT_NEAR(simulate(m, s, 3e6, sliced(kWhole)).time_us, 2 * 1e6 / 10e3, 1e-6);
}

TEST(Simulator, LetsASenderWaitForRoomInTheFifo) {
  const double bytes = 1e6, slice = bytes / 100, us = 5, per_slice = slice / 100e3;
  const Machine m = line(2, 100, us);
  const Schedule s = generated(kSendRecv, CollectiveKind::kSendRecv, 2);
  // One message is in flight at a time, so each pays the latency.
  EXPECT_NEAR(simulate(m, s, bytes, sliced(slice, 1)).time_us, 100 * (us + per_slice), 1e-6);
  EXPECT_NEAR(simulate(m, s, bytes, sliced(slice, 100)).time_us, us + 100 * per_slice, 1e-6);
}

TEST(Simulator, ChargesTheOverheadOfEveryStep) {
  const int n = 5;
  const Schedule s = generated(kRing, CollectiveKind::kAllGather, n);
  SimulationOptions options = sliced(kWhole);
  const double without = simulate(circle(n, 10, 1), s, 1e5, options).time_us;
  options.step_us = 0.25;
  // The first send, every receive, and the copy of this rank's own block cost a step each.
  EXPECT_NEAR(simulate(circle(n, 10, 1), s, 1e5, options).time_us, without + (n + 1) * 0.25, 1e-9);
}

TEST(Simulator, OrdersTokensAndOverlapsReadingAndWritingOfPeersMemory) {
  const int n = 4;
  const double bytes = 64e6, us = 0.5;
  const Machine m = switched({.gpus = n, .switch_gbps = 100, .switch_us = us});
  // Tokens go out, then the data once over every port, then tokens again.
  const Schedule gather = generated(kPeerMemory, CollectiveKind::kAllGather, n);
  EXPECT_NEAR(simulate(m, gather, bytes, sliced(1e5)).time_us,
              3 * 2 * us + (n - 1) * bytes / n / 100e3, 25);
  // Every port carries all inputs and all results.
  const Schedule reduce = generated(kPeerMemory, CollectiveKind::kAllReduce, n);
  const Simulation s = simulate(m, reduce, bytes, sliced(1e5));
  const double bound = throughput_bound(m, reduce.collective).algbw_gbps;
  EXPECT_LE(s.algbw_gbps, bound * (1 + 1e-9));
  EXPECT_GT(s.algbw_gbps, 0.95 * bound);
  // A token costs the latency and nothing else.
  EXPECT_NEAR(simulate(m, reduce, 0, sliced(1e5)).time_us, 4 * 2 * us, 1e-9);
}

TEST(Simulator, NeverPutsTwoMessagesOnALinkAtOnce) {
  const Machine m = switched({.gpus = 8, .switch_gbps = 100, .switch_us = 0.3});
  const Schedule schedule = generated(kDirect, CollectiveKind::kAllReduce, 8);
  const Simulation s = simulate(m, schedule, 1e7, sliced(1e5));
  std::map<int32_t, double> free;
  std::map<int32_t, double> busy;
  EXPECT_GT(s.transfers.size(), 1000u);
  for (const LinkSpan& span : s.transfers) {
    EXPECT_GE(span.begin_us, free[span.link] - 1e-9);
    free[span.link] = span.end_us;
    busy[span.link] += span.end_us - span.begin_us;
  }
  for (const LinkUse& use : s.links) {
    EXPECT_NEAR(busy[use.link], use.busy_us, 1e-6);
    EXPECT_LE(use.busy_us, s.time_us + 1e-9);
  }
}

TEST(Simulator, GivesACriticalPathWithoutGapsInItsCauses) {
  const Machine m = switched({.gpus = 8, .switch_gbps = 100, .switch_us = 0.3});
  const Schedule schedule = generated(kRing, CollectiveKind::kAllReduce, 8);
  const Simulation s = simulate(m, schedule, 1e7, sliced(1e5));
  ASSERT_FALSE(s.critical.empty());
  EXPECT_EQ(s.steps[static_cast<size_t>(s.critical.front())].cause, -1);
  EXPECT_EQ(s.steps[static_cast<size_t>(s.critical.front())].begin_us, 0);
  EXPECT_EQ(s.steps[static_cast<size_t>(s.critical.back())].end_us, s.time_us);
  for (size_t i = 1; i < s.critical.size(); i++) {
    const StepSpan& span = s.steps[static_cast<size_t>(s.critical[i])];
    EXPECT_EQ(span.cause, s.critical[i - 1]);
    // The step began when its cause was complete, or when the cause's data had passed the switch.
    const double waited = span.begin_us - s.steps[static_cast<size_t>(span.cause)].end_us;
    EXPECT_GE(waited, -1e-9);
    EXPECT_LE(waited, 2 * 0.3 + 2 * 1e5 / 100e3 + 1e-9);
  }
}

TEST(Simulator, RunsTheSameWayEveryTime) {
  const Machine m = random_machine(8, 7);
  const Schedule schedule = generated(kDirect, CollectiveKind::kAllReduce, 8);
  SimulationOptions options = sliced(1e4);
  const Simulation first = simulate(m, schedule, 1e6, options);
  const Simulation again = simulate(m, schedule, 1e6, options);
  options.record = false;
  const Simulation unrecorded = simulate(m, schedule, 1e6, options);
  EXPECT_EQ(first.time_us, again.time_us);
  EXPECT_EQ(first.time_us, unrecorded.time_us);
  EXPECT_EQ(first.events, unrecorded.events);
  EXPECT_EQ(first.critical, again.critical);
  ASSERT_EQ(first.transfers.size(), again.transfers.size());
  for (size_t i = 0; i < first.transfers.size(); i++) {
    EXPECT_EQ(first.transfers[i].span, again.transfers[i].span);
    EXPECT_EQ(first.transfers[i].begin_us, again.transfers[i].begin_us);
  }
}

TEST(Simulator, RefusesWhatCannotRun) {
  const auto why = [](const Machine& m, const Schedule& s, int depth) -> std::string {
    try {
      simulate(m, s, 1e6, sliced(kWhole, depth));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  // The only path goes over another GPU.
  EXPECT_NE(why(line(3, 10, 0), generated(kDirect, CollectiveKind::kAllGather, 3), 8)
                .find("no way from g0 to g2"),
            std::string::npos);
  EXPECT_NE(why(line(3, 10, 0), generated(kRing, CollectiveKind::kAllGather, 4), 8)
                .find("for 4 ranks, but line has 3 GPUs"),
            std::string::npos);
  // Both ranks send two messages before they receive any. They are stuck unless a FIFO holds both.
  Schedule s = blank("two by two", {CollectiveKind::kAllToAll, 2, 0}, 2, 1);
  for (int r = 0; r < 2; r++) {
    Lane& lane = s.ranks[static_cast<size_t>(r)].lanes[0];
    for (int i = 0; i < 2; i++)
      add(lane, {Operand::input(2 * (1 - r) + i)}, {Operand::peer(1 - r)});
    for (int i = 0; i < 2; i++)
      add(lane, {Operand::peer(1 - r)}, {Operand::output(2 * (1 - r) + i)});
  }
  EXPECT_EQ(why(line(2, 10, 0), s, 2), "");
  EXPECT_NE(why(line(2, 10, 0), s, 1).find("gets stuck: rank 0 lane 0 step 1"), std::string::npos);
}

TEST(Simulator, UsesTheFirstGpusOfALargerMachine) {
  const Schedule schedule = generated(kRing, CollectiveKind::kAllGather, 4);
  EXPECT_NEAR(simulate(switched({.gpus = 4}), schedule, 1e6).time_us,
              simulate(switched({.gpus = 8}), schedule, 1e6).time_us, 1e-9);
}

}  // namespace
}  // namespace weft::test
