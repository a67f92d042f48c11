// How plans are timed against each other. `weft calibrate` uses it: its times decide the choice.
// `plan_regret` uses it to judge the choice. Both must time alike, because conditions matter. Calls
// take up to twice as long when more ranks share a core, and a third more or less when other ranks
// share it.
//
// Ranks are assigned to the cores in turn and stay there, as with a launcher that binds them. They
// call back to back, as in a job or in nccl-tests. In a cell (a collective, a size) nothing
// separates one plan's calls from the next plan's, unless calls take milliseconds. Plans take turns
// in rounds, so that a disturbance hits all alike. Ranks may be threads or processes; each calls
// these functions.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace weft {

// Binds the calling thread to its rank's core, among the cores it may use.
inline void stay_on_core(int rank) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) == 0) return;
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all) && seen++ == rank % CPU_COUNT(&all)) CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

// A barrier between ranks, in memory that all share.
class Meeting {
 public:
  // False: not all ranks came, because one gave up or never came.
  bool meet(int ranks, double patience_s = 60) {
    const uint32_t now = generation_.load();
    if (arrived_.fetch_add(1) + 1 == static_cast<uint32_t>(ranks)) {
      arrived_.store(0);
      generation_.store(now + 1);
      return true;
    }
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::duration<double>(patience_s);
    while (generation_.load() == now) {
      // The rank that gave up may have come to this barrier before.
      if (given_up_.load() || Clock::now() > until) return generation_.load() != now;
      sched_yield();
    }
    return true;
  }
  void give_up() { given_up_.store(true); }

 private:
  std::atomic<uint32_t> arrived_{0}, generation_{0};
  std::atomic<bool> given_up_{false};
};

// Warm-up before timing. A new communicator's ring buffers are untouched memory; a job has been
// through them long ago. An all_reduce by the plan "direct" sends to every rank through every ring
// buffer. This many calls, with chunks of this size (copied, not lent), go through all of them.
inline constexpr int kWarmingCalls = 130;
inline constexpr size_t kWarmingChunk = 4096;

// Calls per batch: short calls are repeated.
inline int calls_at(uint64_t bytes) {
  return bytes <= (64u << 10)    ? 40
         : bytes <= (256u << 10) ? 10
         : bytes <= (1u << 20)   ? 6
         : bytes <= (8u << 20)   ? 2
                                 : 1;
}

// The root of each call, in turn through all calls of a cell, across plans and batches. Calls from
// one root would overlap and hide the hops. A few roots would find their inputs in the caches,
// which changes what is fastest. A job has other data.
class RotatingRoots {
 public:
  // `number` lets different objects begin with different roots.
  explicit RotatingRoots(int roots, int number = 0) : roots_(roots), last_(number % roots) {}
  int next() { return last_ = (last_ + 1) % roots_; }

 private:
  const int roots_;
  int last_;
};

// The order of plans in a round, equal on all ranks. It is shuffled: if a plan always followed the
// same plan, the cache contents would favour some.
inline std::vector<size_t> order_of_round(size_t plans, int round) {
  std::vector<size_t> order(plans);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::minstd_rand(static_cast<unsigned>(round) + 1));
  return order;
}

// When a rank began the calls of a batch and when it ended them. In us, of a clock that the ranks
// of a host share.
struct Lap {
  double begin = 0, end = 0;
};

// `call(i)` makes call number i of the batch. `finish()` returns when all calls are done. Ranks
// synchronize first: with an extra call, number -1, if calls are short. A long call would overlap
// with that one, so long calls `meet()` instead.
template <typename Meet, typename Call, typename Finish>
Lap run_batch(int calls, const Meet& meet, const Call& call, const Finish& finish) {
  const auto now = [] {
    return std::chrono::duration<double, std::micro>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  if (calls > 1) {
    call(-1);
    finish();
  } else {
    meet();
  }
  Lap lap;
  lap.begin = now();
  for (int i = 0; i < calls; i++) call(i);
  finish();
  lap.end = now();
  return lap;
}

// us per call, until the last rank is done. Begins when the last rank was done with the call
// before. After a meeting it begins when the first rank left it, because others may not have a
// core.
inline double pace(std::span<const Lap> ranks, int calls) {
  double first = ranks[0].begin, last = first, end = 0;
  for (const Lap& lap : ranks) {
    first = std::min(first, lap.begin);
    last = std::max(last, lap.begin);
    end = std::max(end, lap.end);
  }
  return (end - (calls > 1 ? last : first)) / calls;
}

}  // namespace weft
