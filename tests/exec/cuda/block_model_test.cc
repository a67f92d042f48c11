// The rule of block_registry.h as a model, searched exhaustively: kernels of communicators on GPUs
// whose SMs hold one block each, an adversary that places blocks in any order, ranks that issue
// calls in any order across communicators. Whoever has a reservation never deadlocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "src/exec/cuda/block_registry.h"
#include "src/exec/cuda/block_share.h"

namespace weft::test {
namespace {

// One rank of a communicator: the GPU it is on, and the process that issues its calls.
struct ModelRank {
  int gpu = 0, process = 0;
};
struct ModelComm {
  std::vector<ModelRank> ranks;
  int blocks = 0;  // per rank; 0: the common slot
};

// Every communicator makes one call. A process issues its calls in some order; those in its common
// slot start one after the other.
class Model {
 public:
  Model(std::vector<ModelComm> comms, std::vector<int> sms)
      : comms_(std::move(comms)), sms_(std::move(sms)) {}

  // Whether any state that can be reached is stuck. `consistent`: all processes issue calls in
  // slots in one order (by number); those with a reservation in any.
  bool can_deadlock(bool consistent) {
    consistent_ = consistent;
    seen_.clear();
    stuck_ = false;
    State start;
    for (const ModelComm& comm : comms_) start.push_back(std::vector<int>(comm.ranks.size(), -1));
    start.resize(comms_.size() + kProcesses * sms_.size());
    visit(start);
    return stuck_;
  }

 private:
  // Per communicator and rank: -1 not issued, k >= 0 issued with k blocks resident, kDone.
  using State = std::vector<std::vector<int>>;
  static constexpr int kDone = 1000;
  static constexpr size_t kProcesses = 3;

  int needed(size_t c) const { return std::max(1, comms_[c].blocks); }

  // Blocks that wait on a GPU.
  int resident(const State& s, int gpu) const {
    int sum = 0;
    for (size_t c = 0; c < comms_.size(); c++)
      for (size_t r = 0; r < s[c].size(); r++)
        if (comms_[c].ranks[r].gpu == gpu && s[c][r] > 0 && s[c][r] != kDone) sum += s[c][r];
    return sum;
  }

  // Behind the communicators, the state has a row per slot: the calls issued there, in their order.
  size_t row_of(const ModelRank& rank) const {
    return comms_.size() + static_cast<size_t>(rank.process) * sms_.size() +
           static_cast<size_t>(rank.gpu);
  }

  // A call in a common slot begins when those issued before it are done.
  bool slot_is_free(const State& s, size_t c, const ModelRank& me) const {
    for (const int issued : s[row_of(me)]) {
      const auto other = static_cast<size_t>(issued);
      if (other == c) return true;
      for (size_t q = 0; q < s[other].size(); q++)
        if (comms_[other].ranks[q].process == me.process && comms_[other].ranks[q].gpu == me.gpu &&
            s[other][q] != kDone)
          return false;
    }
    return false;
  }

  // Whether a process may issue this call now: with a consistent order, calls in slots follow those
  // of smaller numbers in the same slot.
  bool may_issue(const State& s, size_t c, size_t r) const {
    if (comms_[c].blocks > 0 || !consistent_) return true;
    const ModelRank& me = comms_[c].ranks[r];
    for (size_t other = 0; other < c; other++)
      for (size_t q = 0; q < s[other].size(); q++) {
        const ModelRank& them = comms_[other].ranks[q];
        if (comms_[other].blocks == 0 && them.process == me.process && them.gpu == me.gpu &&
            s[other][q] == -1)
          return false;
      }
    return true;
  }

  void visit(const State& s) {
    if (stuck_ || !seen_.insert(s).second) return;
    bool moved = false, finished = true;
    for (size_t c = 0; c < comms_.size(); c++) {
      bool complete = true;  // all blocks of all ranks are resident: they end together
      for (size_t r = 0; r < s[c].size(); r++) {
        finished = finished && s[c][r] == kDone;
        complete = complete && s[c][r] == needed(c);
        if (s[c][r] == kDone) continue;
        State next = s;
        if (s[c][r] == -1) {
          if (!may_issue(s, c, r)) continue;
          next[c][r] = 0;
          if (comms_[c].blocks == 0)
            next[row_of(comms_[c].ranks[r])].push_back(static_cast<int>(c));
        } else {
          const int gpu = comms_[c].ranks[r].gpu;
          if (s[c][r] == needed(c) || resident(s, gpu) >= sms_[static_cast<size_t>(gpu)]) continue;
          if (comms_[c].blocks == 0 && !slot_is_free(s, c, comms_[c].ranks[r])) continue;
          next[c][r]++;
        }
        moved = true;
        visit(next);
      }
      if (!complete) continue;
      State next = s;
      for (int& rank : next[c]) rank = kDone;
      moved = true;
      visit(next);
    }
    stuck_ = stuck_ || (!moved && !finished);
  }

  const std::vector<ModelComm> comms_;
  const std::vector<int> sms_;
  bool consistent_ = true, stuck_ = false;
  std::set<State> seen_;
};

// What the registry would say: reserves in this order, `percent` of what is free each time.
bool reserve(std::vector<ModelComm>& comms, const std::vector<int>& sms, int processes,
             int percent) {
  std::vector<int> free;
  for (const int count : sms) free.push_back(cuda::block_budget(count));
  std::set<std::pair<int, int>> slots;
  for (const ModelComm& comm : comms)
    for (const ModelRank& rank : comm.ranks) slots.insert({rank.gpu, rank.process});
  for (const auto& [gpu, process] : slots)
    if (process < processes && --free[static_cast<size_t>(gpu)] < 0) return false;
  for (ModelComm& comm : comms) {
    std::vector<cuda::BlockClaim> claims;
    for (const ModelRank& rank : comm.ranks)
      claims.push_back({std::to_string(rank.gpu), free[static_cast<size_t>(rank.gpu)], 0});
    comm.blocks = cuda::blocks_per_rank(claims, percent, 128);
    for (const ModelRank& rank : comm.ranks) free[static_cast<size_t>(rank.gpu)] -= comm.blocks;
  }
  return true;
}

// Three processes on two GPUs: the first two share GPU 0, the third has GPU 1.
ModelRank rank_of(int process) { return {process < 2 ? 0 : 1, process}; }

// All sets of at least two of the three processes.
std::vector<ModelComm> all_comms() {
  std::vector<ModelComm> all;
  for (int members = 1; members < 8; members++) {
    ModelComm comm;
    for (int p = 0; p < 3; p++)
      if ((members >> p & 1) != 0) comm.ranks.push_back(rank_of(p));
    if (comm.ranks.size() > 1) all.push_back(comm);
  }
  return all;
}

TEST(BlockModel, NeverDeadlocksWhereEveryBlockIsReserved) {
  const std::vector<ModelComm> kinds = all_comms();
  int models = 0, with_slots = 0;
  for (const int sms : {4, 5, 6, 8})
    for (size_t a = 0; a < kinds.size(); a++)
      for (size_t b = a; b < kinds.size(); b++)
        for (size_t c = b; c < kinds.size(); c++)
          for (size_t d = c; d < kinds.size(); d++) {
            std::vector<ModelComm> comms = {kinds[a], kinds[b], kinds[c], kinds[d]};
            if (!reserve(comms, {sms, sms}, 3, 50)) continue;
            models++;
            for (const ModelComm& comm : comms) with_slots += comm.blocks == 0 ? 1 : 0;
            EXPECT_FALSE(Model(comms, {sms, sms}).can_deadlock(true))
                << sms << " SMs, communicators " << a << b << c << d;
          }
  EXPECT_GT(models, 50);
  EXPECT_GT(with_slots, 0) << "some must have gone without";
}

TEST(BlockModel, FindsTheDeadlockOfBlocksThatAreNotReserved) {
  ModelComm comm;
  comm.ranks = {{0, 0}, {0, 1}};
  comm.blocks = 2;
  // Two communicators of four blocks each on four SMs: each may get half of what it needs.
  EXPECT_TRUE(Model({comm, comm}, {4}).can_deadlock(true));
  EXPECT_FALSE(Model({comm, comm}, {8}).can_deadlock(true));
  EXPECT_FALSE(Model({comm}, {4}).can_deadlock(true));
}

TEST(BlockModel, NeedsOneOrderInCommonSlots) {
  ModelComm comm;
  comm.ranks = {{0, 0}, {1, 2}};
  EXPECT_FALSE(Model({comm, comm}, {4, 4}).can_deadlock(true));
  EXPECT_TRUE(Model({comm, comm}, {4, 4}).can_deadlock(false)) << "each slot began another call";
}

// Real sizes cannot be searched, but the invariant can be checked: no order of reservations hands
// out a block that would have no SM.
TEST(BlockModel, KeepsAnSmFreeOnRealGpus) {
  for (const int sms : {40, 132})
    for (const int ranks : {1, 2, 4, 8, 16, 32})
      for (const int percent : {25, 50, 75, 100}) {
        ModelComm comm;
        for (int r = 0; r < ranks; r++) comm.ranks.push_back({0, r});
        std::vector<ModelComm> comms(50, comm);
        ASSERT_TRUE(reserve(comms, {sms}, ranks, percent));
        int reserved = ranks;  // the common slots
        for (const ModelComm& made : comms) reserved += made.blocks * ranks;
        EXPECT_LE(reserved, sms - 2) << ranks << " ranks, " << percent << "%";
        EXPECT_EQ(comms.back().blocks, 0) << "not all of fifty fit";
      }
}

}  // namespace
}  // namespace weft::test
