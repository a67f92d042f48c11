// The rule of block_registry.h as a model, searched exhaustively: kernels of communicators on GPUs
// whose SMs hold one block each, an adversary that places blocks in any order, ranks that issue
// calls in any order across communicators. Whoever has a reservation never deadlocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>
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
  int blocks = 0;   // per rank
  bool own = true;  // it has reserved them; otherwise its calls take the processes' first slots
};

// Every communicator makes one call. A process issues its calls in some order. Its first slot has
// the blocks of its first communicator with a reservation. Calls there start one after the other:
// those of that communicator, and those of communicators without a reservation.
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

  int needed(size_t c) const { return comms_[c].blocks; }

  bool has(size_t c, const ModelRank& rank) const {
    return std::any_of(comms_[c].ranks.begin(), comms_[c].ranks.end(), [&](const ModelRank& r) {
      return r.gpu == rank.gpu && r.process == rank.process;
    });
  }
  // Whether the call of communicator c takes the first slot of this rank's process.
  bool takes_slot(size_t c, const ModelRank& rank) const {
    if (!comms_[c].own) return true;
    for (size_t other = 0; other < c; other++)
      if (comms_[other].own && has(other, rank)) return false;
    return true;
  }

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

  // A call in a slot begins when those issued before it are done.
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
    const ModelRank& me = comms_[c].ranks[r];
    if (!takes_slot(c, me) || !consistent_) return true;
    for (size_t other = 0; other < c; other++)
      for (size_t q = 0; q < s[other].size(); q++) {
        const ModelRank& them = comms_[other].ranks[q];
        if (takes_slot(other, them) && them.process == me.process && them.gpu == me.gpu &&
            s[other][q] == -1)
          return false;
      }
    return true;
  }

  // Whether the next block of this call finds room.
  bool may_place(const State& s, size_t c, size_t r) const {
    const ModelRank& me = comms_[c].ranks[r];
    if (s[c][r] == needed(c) || resident(s, me.gpu) >= sms_[static_cast<size_t>(me.gpu)])
      return false;
    return !takes_slot(c, me) || slot_is_free(s, c, me);
  }

  // Cheap to compare: most of the search is looking for states that were seen.
  static std::string text_of(const State& s) {
    std::string text;
    text.reserve(64);
    for (const std::vector<int>& row : s) {
      for (const int value : row) text.push_back(static_cast<char>(value == kDone ? 'd' : value));
      text.push_back('|');
    }
    return text;
  }

  void visit(State& s) {
    if (stuck_ || !seen_.insert(text_of(s)).second) return;
    bool moved = false, finished = true;
    for (size_t c = 0; c < comms_.size(); c++) {
      bool complete = true;  // all blocks of all ranks are resident: they end together
      for (size_t r = 0; r < s[c].size(); r++) {
        finished = finished && s[c][r] == kDone;
        complete = complete && s[c][r] == needed(c);
        if (s[c][r] == kDone) continue;
        const bool issues = s[c][r] == -1;
        if (issues ? !may_issue(s, c, r) : !may_place(s, c, r)) continue;
        moved = true;
        const bool queues = issues && takes_slot(c, comms_[c].ranks[r]);
        if (queues) s[row_of(comms_[c].ranks[r])].push_back(static_cast<int>(c));
        s[c][r]++;
        visit(s);
        s[c][r]--;
        if (queues) s[row_of(comms_[c].ranks[r])].pop_back();
      }
      if (!complete) continue;
      moved = true;
      for (int& rank : s[c]) rank = kDone;
      visit(s);
      for (int& rank : s[c]) rank = needed(c);
    }
    stuck_ = stuck_ || (!moved && !finished);
  }

  const std::vector<ModelComm> comms_;
  const std::vector<int> sms_;
  bool consistent_ = true, stuck_ = false;
  std::unordered_set<std::string> seen_;
};

// What init would do, communicator by communicator, each asking for `percent`. False: it fails for
// want of blocks. `left`: what nobody has reserved in the end.
bool reserve(std::vector<ModelComm>& comms, const std::vector<int>& sms, int percent,
             std::vector<int>& left) {
  left.clear();
  for (const int count : sms) left.push_back(cuda::block_budget(count));
  std::map<std::pair<int, int>, int> slots;  // blocks of the first slot of a process on a GPU
  for (ModelComm& comm : comms) {
    std::vector<cuda::BlockClaim> claims;
    for (const ModelRank& rank : comm.ranks)
      claims.push_back({std::to_string(rank.gpu), left[static_cast<size_t>(rank.gpu)], 0});
    comm.blocks = cuda::blocks_per_rank(claims, percent, 128);
    comm.own = comm.blocks > 0;
    if (!comm.own) comm.blocks = 128;
    for (const ModelRank& rank : comm.ranks) {
      int& free = left[static_cast<size_t>(rank.gpu)];
      if (comm.own) free -= comm.blocks;
      int& slot = slots[{rank.gpu, rank.process}];
      if (slot == 0 && !comm.own && --free < 0) return false;
      if (slot == 0) slot = comm.own ? comm.blocks : 1;
      if (!comm.own) comm.blocks = std::min(comm.blocks, slot);
    }
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
  int models = 0, shared = 0;
  for (const int sms : {4, 5, 6, 8})
    for (size_t a = 0; a < kinds.size(); a++)
      for (size_t b = a; b < kinds.size(); b++)
        for (size_t c = b; c < kinds.size(); c++)
          for (size_t d = c; d < kinds.size(); d++) {
            std::vector<ModelComm> comms = {kinds[a], kinds[b], kinds[c], kinds[d]};
            std::vector<int> left;
            if (!reserve(comms, {sms, sms}, 50, left)) continue;
            models++;
            for (const ModelComm& comm : comms) shared += comm.own ? 0 : 1;
            EXPECT_FALSE(Model(comms, {sms, sms}).can_deadlock(true))
                << sms << " SMs, communicators " << a << b << c << d;
          }
  EXPECT_GT(models, 50);
  EXPECT_GT(shared, 0) << "some must have gone without";
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

TEST(BlockModel, NeedsOneOrderInSharedSlots) {
  ModelComm first, second;
  first.ranks = second.ranks = {{0, 0}, {1, 2}};
  first.blocks = second.blocks = 1;
  second.own = false;
  EXPECT_FALSE(Model({first, second}, {4, 4}).can_deadlock(true));
  EXPECT_TRUE(Model({first, second}, {4, 4}).can_deadlock(false)) << "each began another call";
  second.own = true;
  EXPECT_FALSE(Model({first, second}, {4, 4}).can_deadlock(false)) << "each has its own blocks";
}

// Real sizes cannot be searched, but the invariant can be checked: no order of reservations hands
// out a block that would have no SM.
TEST(BlockModel, KeepsSmsFreeOnRealGpus) {
  for (const int sms : {40, 132})
    for (const int ranks : {1, 2, 4, 8, 16, 32})
      for (const int percent : {-1, 25, 50, 100}) {
        ModelComm comm;
        for (int r = 0; r < ranks; r++) comm.ranks.push_back({0, r});
        std::vector<ModelComm> comms(50, comm);
        std::vector<int> left;
        ASSERT_TRUE(reserve(comms, {sms}, percent, left)) << ranks << " ranks, " << percent << "%";
        int reserved = 0;
        for (const ModelComm& made : comms) reserved += made.own ? made.blocks * ranks : 0;
        EXPECT_LE(reserved, sms - 2) << ranks << " ranks, " << percent << "%";
        EXPECT_EQ(reserved + left[0], cuda::block_budget(sms));
        EXPECT_FALSE(comms.back().own) << "not all of fifty fit";
        EXPECT_GE(comms.back().blocks, 1);
      }
}

}  // namespace
}  // namespace weft::test
