// Threads that wait for each other in several communicators: every deadlock is found, and nothing
// else is taken for one, whatever the order in which threads wait and reports arrive.
#include "src/comm/wait_chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/comm/stall_exchange.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

// Processes with a thread each, and communicators between them. Reports arrive when the test says.
class World {
 public:
  struct Rank {
    int process = 0;
    CommunicatorOptions options;
    host::RankContext context;
    std::unique_ptr<StallExchange> exchange;
    std::deque<News> mail;
    uint64_t thread = 1;
    uint64_t next = 0;  // number of its next collective
    bool alone = true;
    std::vector<std::string> errors, suspicions;
  };
  using Team = std::vector<std::unique_ptr<Rank>>;

  Team& add(const std::vector<int>& processes) {
    Team& team = *teams_.emplace_back(std::make_unique<Team>());
    const int n = static_cast<int>(processes.size());
    for (int r = 0; r < n; r++) {
      Rank& rank = *team.emplace_back(std::make_unique<Rank>());
      rank.process = processes[static_cast<size_t>(r)];
      rank.context.rank = rank.options.rank = r;
      rank.options.nranks = n;
      rank.options.id.secret[0] = static_cast<uint8_t>(teams_.size());
      rank.context.messages.reset(n);
      rank.exchange = std::make_unique<StallExchange>(
          rank.options, rank.context,
          StallExchange::Surroundings{
              static_cast<uint64_t>(rank.process), "team" + std::to_string(teams_.size() - 1),
              "process " + std::to_string(rank.process),
              [](int, uint64_t bytes) { return bytes > 1000; },
              [&team, &rank](const News& news) {
                for (auto& other : team)
                  if (other.get() != &rank) other->mail.push_back(news);
              },
              [&team, &rank](const std::string& text) {
                for (auto& one : team) one->context.stop = 1;
                rank.errors.push_back(text);
              },
              [&rank](const std::string& text) { rank.suspicions.push_back(text); },
              [this, &rank] { return siblings_of(rank.process); }, [&rank] { return rank.alone; },
              [](int) { return false; }, [](int) { return false; }});
    }
    return team;
  }

  static void begin(Rank& rank, CollectiveKind kind = CollectiveKind::kAllReduce, int root = 0) {
    const uint64_t number = rank.next++;
    rank.context.history.add(number, common_call(kind, 0, 0, root, 8));
    rank.context.activity.begin({kind, false, 0, 0, root, number, 8});
  }
  static void begin_message(Rank& rank, bool sends, int peer, uint64_t bytes = 8) {
    rank.context.messages.begin_batch();
    rank.context.messages.add(sends, peer);
    rank.context.activity.begin({CollectiveKind::kSendRecv, sends, ncclInt8, 0, peer, 0, bytes});
  }
  static void end(Rank& rank) { rank.context.activity.end(false); }
  static void stall(Rank& rank, int peer, bool to_send = false) {
    rank.context.activity.waits({peer, to_send});
    rank.exchange->tell();
  }
  static bool hear(Rank& rank) {
    if (rank.mail.empty()) return false;
    const News news = rank.mail.front();
    rank.mail.pop_front();
    rank.exchange->hear(news);
    return true;
  }
  void hear_all() {
    for (bool some = true; some;) {
      some = false;
      for (auto& team : teams_)
        for (auto& rank : *team) some = hear(*rank) || some;
    }
  }

  std::set<std::string> errors() const {
    std::set<std::string> all;
    for (const auto& team : teams_)
      for (const auto& rank : *team) all.insert(rank->errors.begin(), rank->errors.end());
    return all;
  }
  bool stopped(size_t team) const { return teams_[team]->front()->context.stop != 0; }

 private:
  std::vector<Sibling> siblings_of(int process) {
    std::vector<Sibling> found;
    for (auto& team : teams_)
      for (auto& rank : *team)
        if (rank->process == process) found.push_back({rank->thread, rank->exchange.get(), {}});
    return found;
  }

  std::vector<std::unique_ptr<Team>> teams_;
};

TEST(WaitChain, ThreePairsInACircleAllLearnWhoWaitsForWhom) {
  World world;
  auto &a = world.add({0, 1}), &b = world.add({1, 2}), &c = world.add({2, 0});
  World::begin(*a[0]);
  World::begin(*b[0]);
  World::begin(*c[0]);
  World::stall(*a[0], 1);
  World::stall(*c[0], 1);
  world.hear_all();
  EXPECT_TRUE(world.errors().empty());
  World::stall(*b[0], 1);
  world.hear_all();
  EXPECT_TRUE(world.stopped(0) && world.stopped(1) && world.stopped(2));
  ASSERT_EQ(world.errors().size(), 1u);
  const std::string text = *world.errors().begin();
  for (const char* part :
       {"process 0 waits for rank 1 in operation 0, all_reduce of 8 bytes (type int8, op sum, root "
        "0) of communicator team0",
        "process 1 waits for rank 1 in operation 0", "process 2 waits for rank 1 in operation 0",
        "team1", "team2"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

// Processes 0 and 1 wait for each other, and process 2 for process 1.
TEST(WaitChain, WhoWaitsForADeadlockHearsOfIt) {
  World world;
  auto &a = world.add({0, 1}), &b = world.add({1, 0}), &c = world.add({2, 1});
  World::begin(*c[0]);
  World::stall(*c[0], 1);
  world.hear_all();
  World::begin(*a[0]);
  World::begin(*b[0]);
  World::stall(*a[0], 1);
  World::stall(*b[0], 1);
  world.hear_all();
  EXPECT_TRUE(world.stopped(0) && world.stopped(1) && world.stopped(2));
  ASSERT_EQ(world.errors().size(), 1u);
  EXPECT_EQ(world.errors().begin()->find("process 2"), std::string::npos);
}

// Ranks 0 and 1 wait in operation 1, rank 2 still in operation 0 of a gather, for rank 3.
TEST(WaitChain, ALaterCallWaitsForAnEarlierOneOfTheSameCommunicator) {
  World world;
  auto &a = world.add({0, 1, 2, 3}), &b = world.add({3, 0});
  for (const int r : {0, 1}) {
    World::begin(*a[static_cast<size_t>(r)], CollectiveKind::kGather, 2);
    World::end(*a[static_cast<size_t>(r)]);
    World::begin(*a[static_cast<size_t>(r)]);
  }
  World::begin(*a[2], CollectiveKind::kGather, 2);
  World::begin(*b[0]);
  World::stall(*a[0], 2);
  World::stall(*a[2], 3);
  World::stall(*b[0], 1);
  world.hear_all();
  EXPECT_TRUE(world.stopped(0) && world.stopped(1));
  EXPECT_EQ(world.errors().size(), 1u);
}

TEST(WaitChain, ACallThatHasBegunIsNoReason) {
  World world;
  auto &a = world.add({0, 1}), &b = world.add({1, 0});
  World::begin(*a[1]);  // its data is on its way
  World::end(*a[1]);
  World::begin(*a[0]);
  World::begin(*b[0]);
  World::stall(*a[0], 1);
  World::stall(*b[0], 1);
  world.hear_all();
  EXPECT_TRUE(world.errors().empty());
}

TEST(WaitChain, ThreadsThatMayNotMakeTheCallAreNoReason) {
  World world;
  auto &a = world.add({0, 1}), &b = world.add({1, 0});
  b[1]->thread = 2;
  World::begin(*a[0]);
  World::begin(*b[0]);
  World::stall(*a[0], 1);
  World::stall(*b[0], 1);
  b[1]->thread = a[0]->thread = 0;  // several threads, or one that waits for nothing
  World::stall(*a[0], 1);
  World::stall(*b[0], 1);
  world.hear_all();
  EXPECT_TRUE(world.errors().empty());
}

// Another thread of process 1 may come and make the calls that the others wait for.
TEST(WaitChain, WhereOtherThreadsMayComePeopleAreToldAndNothingFails) {
  World world;
  auto &a = world.add({0, 1}), &b = world.add({1, 0});
  b[0]->alone = false;
  World::begin(*a[0]);
  World::begin(*b[0]);
  for (int second = 0; second < 3; second++) {
    World::stall(*a[0], 1);
    World::stall(*b[0], 1);
    world.hear_all();
  }
  EXPECT_TRUE(world.errors().empty());
  for (const World::Rank* waits : {a[0].get(), b[0].get()}) {
    ASSERT_EQ(waits->suspicions.size(), 1u);
    EXPECT_EQ(waits->suspicions[0].find("this is a deadlock unless other threads"), 0u);
    EXPECT_NE(waits->suspicions[0].find("process 0 waits for rank 1"), std::string::npos);
  }
  EXPECT_TRUE(a[1]->suspicions.empty() && b[1]->suspicions.empty());
}

TEST(WaitChain, ASenderDoesNotWaitForTheOthers) {
  World world;
  auto &a = world.add({0, 1}), &b = world.add({1, 0});
  World::begin(*a[0], CollectiveKind::kBroadcast, 0);
  World::begin(*b[0]);
  World::stall(*a[0], 1, true);
  World::stall(*b[0], 1);
  world.hear_all();
  EXPECT_TRUE(world.errors().empty());
}

TEST(WaitChain, AReceiveWaitsForASendThatHasNotBegun) {
  World world;
  auto &a = world.add({0, 1}), &b = world.add({1, 0});
  World::begin_message(*a[1], true, 0);
  World::end(*a[1]);
  World::begin_message(*a[0], false, 1);  // of the message that was sent
  World::begin_message(*b[0], false, 1);
  World::stall(*a[0], 1);
  World::stall(*b[0], 1);
  world.hear_all();
  EXPECT_TRUE(world.errors().empty());
  World::end(*a[0]);
  World::begin_message(*a[0], false, 1);
  World::stall(*a[0], 1);
  world.hear_all();
  EXPECT_EQ(world.errors().size(), 1u);
  EXPECT_NE(world.errors().begin()->find("a receive of 8 bytes (type int8)"), std::string::npos);
}

TEST(WaitChain, ASendWaitsForAReceiveIfNoFifoHoldsIt) {
  for (const uint64_t bytes : {1000, 1001}) {
    World world;
    auto &a = world.add({0, 1}), &b = world.add({1, 0});
    World::begin_message(*a[0], true, 1, bytes);
    World::begin_message(*b[0], true, 1, 5000);
    World::stall(*a[0], 1, true);
    World::stall(*b[0], 1, true);
    world.hear_all();
    EXPECT_EQ(world.errors().size(), bytes > 1000 ? 1u : 0u);
  }
}

// The bytes may be those of both messages together.
TEST(WaitChain, ASendBesideOtherMessagesIsNoReason) {
  World world;
  auto &a = world.add({0, 1}), &b = world.add({1, 0});
  World::begin_message(*a[0], true, 1, 5000);
  a[0]->context.messages.add(false, 1);
  World::begin_message(*b[0], true, 1, 5000);
  World::stall(*a[0], 1, true);
  World::stall(*b[0], 1, true);
  world.hear_all();
  EXPECT_TRUE(world.errors().empty());
}

// Random programs of all_reduces. A thread's call ends when all ranks have begun it.
class RandomPrograms {
 public:
  explicit RandomPrograms(uint64_t seed) : random_(seed) {
    const int threads = draw(2, 5), teams = draw(2, 5);
    for (int t = 0; t < teams; t++) {
      std::vector<int> all(static_cast<size_t>(threads));
      for (int i = 0; i < threads; i++) all[static_cast<size_t>(i)] = i;
      std::shuffle(all.begin(), all.end(), random_);
      all.resize(static_cast<size_t>(draw(2, threads)));
      teams_.push_back(&world_.add(all));
    }
    threads_.resize(static_cast<size_t>(threads));
    // All make the calls in one order; then some are exchanged.
    for (int c = draw(1, 8); c > 0; c--) {
      const auto team = static_cast<size_t>(draw(0, teams - 1));
      for (auto& rank : *teams_[team])
        threads_[static_cast<size_t>(rank->process)].calls.push_back(team);
    }
    for (Thread& thread : threads_)
      if (thread.calls.size() > 1 && draw(0, 2) == 0)
        std::swap(
            thread.calls[0],
            thread.calls[static_cast<size_t>(draw(1, static_cast<int>(thread.calls.size()) - 1))]);
  }

  void play() {
    for (int step = 0; step < 400 && world_.errors().empty(); step++) act(draw(0, 3));
    // The rest of the calls, then all that wait tell so.
    for (int round = 0; round < 2 && world_.errors().empty(); round++) {
      for (bool moves = true; moves;) {
        moves = false;
        for (size_t t = 0; t < threads_.size(); t++) moves = move(t) || moves;
      }
      for (size_t t = 0; t < threads_.size(); t++) tell(t);
      world_.hear_all();
    }
    const std::vector<bool> stuck = stuck_threads();
    const bool any = std::find(stuck.begin(), stuck.end(), true) != stuck.end();
    EXPECT_EQ(!world_.errors().empty(), any);
    deadlocks_ += any;
    world_.hear_all();
    for (size_t t = 0; t < teams_.size(); t++)
      if (world_.stopped(t)) {
        const auto waits = [&](const auto& rank) {
          const Thread& thread = threads_[static_cast<size_t>(rank->process)];
          return thread.busy && thread.calls[thread.done] == t &&
                 stuck[static_cast<size_t>(rank->process)];
        };
        EXPECT_TRUE(std::any_of(teams_[t]->begin(), teams_[t]->end(), waits));
      }
  }
  int deadlocks() const { return deadlocks_; }

 private:
  struct Thread {
    std::vector<size_t> calls;  // teams
    size_t done = 0;
    bool busy = false;
  };
  int draw(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }

  World::Rank& rank_of(size_t thread) {
    for (auto& rank : *teams_[threads_[thread].calls[threads_[thread].done]])
      if (rank->process == static_cast<int>(thread)) return *rank;
    std::abort();
  }
  // A rank of the thread's current team that has not begun the call; -1: all have.
  int missing(size_t thread) {
    const World::Rank& own = rank_of(thread);
    for (auto& rank : *teams_[threads_[thread].calls[threads_[thread].done]])
      if (rank->next < own.next) return rank->options.rank;
    return -1;
  }
  bool move(size_t t) {
    Thread& thread = threads_[t];
    if (thread.done == thread.calls.size()) return false;
    if (!thread.busy) {
      World::begin(rank_of(t));
      return thread.busy = true;
    }
    if (missing(t) >= 0) return false;
    World::end(rank_of(t));
    thread.busy = false;
    thread.done++;
    return true;
  }
  void tell(size_t t) {
    if (!threads_[t].busy || missing(t) < 0) return;
    World::stall(rank_of(t), missing(t));
  }
  void act(int what) {
    const auto t = static_cast<size_t>(draw(0, static_cast<int>(threads_.size()) - 1));
    if (what == 0) return tell(t);
    if (what == 1) {
      move(t);
      return;
    }
    auto& team = *teams_[static_cast<size_t>(draw(0, static_cast<int>(teams_.size()) - 1))];
    World::hear(*team[static_cast<size_t>(draw(0, static_cast<int>(team.size()) - 1))]);
  }
  // Plays on without reports: who never ends?
  std::vector<bool> stuck_threads() const {
    std::vector<Thread> threads = threads_;
    std::map<std::pair<size_t, size_t>, uint64_t> begun;  // by team and thread
    for (size_t t = 0; t < teams_.size(); t++)
      for (auto& rank : *teams_[t]) begun[{t, static_cast<size_t>(rank->process)}] = rank->next;
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t t = 0; t < threads.size(); t++) {
        Thread& thread = threads[t];
        if (thread.done == thread.calls.size()) continue;
        const size_t team = thread.calls[thread.done];
        if (!thread.busy) {
          begun[{team, t}]++;
          moves = thread.busy = true;
          continue;
        }
        if (std::any_of(begun.begin(), begun.end(), [&](const auto& one) {
              return one.first.first == team && one.second < begun[{team, t}];
            }))
          continue;
        thread.busy = false;
        thread.done++;
        moves = true;
      }
    }
    std::vector<bool> stuck;
    for (const Thread& thread : threads) stuck.push_back(thread.busy);
    return stuck;
  }

  std::mt19937_64 random_;
  World world_;
  std::vector<World::Team*> teams_;
  std::vector<Thread> threads_;
  int deadlocks_ = 0;
};

TEST(WaitChain, RandomProgramsFailIfAndOnlyIfTheyCannotGoOn) {
  const uint64_t seed = test_seed();
  int deadlocks = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    SCOPED_TRACE(seed + i);
    RandomPrograms programs(seed + i);
    programs.play();
    deadlocks += programs.deadlocks();
    if (HasFailure()) return;
  }
  EXPECT_GT(deadlocks, 50);
  EXPECT_LT(deadlocks, 950);
}

}  // namespace
}  // namespace weft::test
