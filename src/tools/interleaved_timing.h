// How plans are timed against each other: by `weft calibrate`, whose times decide what is chosen,
// and by `plan_regret`, which judges the choice. There is one way, because the same calls take up
// to twice as long when more ranks share a core, and a third more or less when others do.
//
// Ranks are dealt out to the cores in turn and stay there, as a launcher that binds them does. They
// call back to back, like those of a job or of nccl-tests: in a cell (a collective, a size) nothing
// stands between one plan's calls and the next plan's but the calls themselves, unless they take
// milliseconds. Plans take turns in rounds, so that what disturbs the machine disturbs all alike.
// Ranks may be threads or processes; each calls these functions for itself.
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

// Binds the calling thread to the core of its rank, among those it may use.
inline void stay_on_core(int rank) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) == 0) return;
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all) && seen++ == rank % CPU_COUNT(&all)) CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

// Where ranks wait for each other. Lies in memory that all share.
class Meeting {
 public:
  // False: not all came, because one has given up or does not come at all.
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
      // Who gives up may have come to this meeting before.
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

// Before anything is timed: rings of messages are memory that nobody has touched when a
// communicator is new, and a job has been round them long ago. An all_reduce by the plan "direct"
// sends to every rank through every ring; so many, with chunks of so many bytes (which are copied,
// not lent), go round all of them.
inline constexpr int kWarmingCalls = 130;
inline constexpr size_t kWarmingChunk = 4096;

// Calls of a batch: what is short is repeated.
inline int calls_at(uint64_t bytes) {
  return bytes <= (64u << 10)    ? 40
         : bytes <= (256u << 10) ? 10
         : bytes <= (1u << 20)   ? 6
         : bytes <= (8u << 20)   ? 2
                                 : 1;
}

// Whose turn it is to be the root, from call to call of a cell, whatever the plan or the batch.
// Calls from one root would overlap, and no hop would be seen. From a few roots, again and again,
// they would find those ranks' inputs in the caches, which changes what is fastest: a job has other
// data.
class RotatingRoots {
 public:
  // Different ones begin with different roots.
  explicit RotatingRoots(int roots, int number = 0) : roots_(roots), last_(number % roots) {}
  int next() { return last_ = (last_ + 1) % roots_; }

 private:
  const int roots_;
  int last_;
};

// In which order plans take their turns; all ranks know it. Nobody always follows the same one:
// what that leaves in the caches would favour some.
inline std::vector<size_t> order_of_round(size_t plans, int round) {
  std::vector<size_t> order(plans);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::minstd_rand(static_cast<unsigned>(round) + 1));
  return order;
}

// When a rank was ready for the calls of a batch, and when through them: us of a clock that
// ranks of a host share.
struct Lap {
  double begin = 0, end = 0;
};

// `call(i)` makes call number i of the batch, `finish()` returns when all that were made are done.
// Something brings ranks into step: where calls are short, one more, number -1; a long one would
// overlap with that, so there they `meet()`.
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

// us a call, until the last rank is through: from when the last was through the call before, or the
// first came back from the meeting (the others may not have had a core).
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
