// How ranks agree on their thread blocks: communicators made at once, and GPUs without room.
#include "src/comm/block_agreement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <thread>

#include "src/base/error.h"
#include "src/exec/cuda/rank_blocks.h"
#include "tests/support/threads.h"

namespace weft::test {
namespace {

using cuda::BlockRegistry;
using cuda::LaunchSlot;
using cuda::RankBlocks;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kGpuSms = 132, kAllBlocks = 128;
constexpr auto kLongWait = std::chrono::seconds(30);

// The ranks of one communicator, as threads.
class AgreeingTeam {
 public:
  AgreeingTeam(int ranks, uint64_t group) : ranks_(ranks), group_(group), texts_(at(ranks)) {}

  std::vector<std::string> all_gather(int rank, const std::string& mine) {
    texts_[at(rank)] = mine;
    meeting_.arrive_and_wait();
    std::vector<std::string> all = texts_;
    meeting_.arrive_and_wait();
    return all;
  }

  // What init does on a rank. All ranks share a GPU.
  BlockAgreement agree(int rank, RankBlocks& mine, milliseconds limit) {
    BlockAgreementParts parts;
    parts.claims.resize(at(ranks_), {"a GPU", 0, 0});
    parts.percent = percent;
    parts.most = 64;
    parts.all_gather = [&](const std::string& text) { return all_gather(rank, text); };
    parts.look = [&](bool any) { return mine.look(any); };
    parts.reserve = [&](int blocks) { return mine.reserve(blocks); };
    parts.release = [&] { mine.release(); };
    return agree_on_blocks(parts, steady_clock::now() + limit);
  }
  int ranks() const { return ranks_; }
  uint64_t group() const { return group_; }

  int percent = -1;

 private:
  static size_t at(int number) { return static_cast<size_t>(number); }
  const int ranks_;
  const uint64_t group_;
  std::vector<std::string> texts_;
  std::barrier<> meeting_{ranks_};
};

// A registry of its own for every test, and a device number: slots are kept by device.
class BlockAgreementTest : public testing::Test {
 protected:
  void TearDown() override { unlink(path_.c_str()); }
  std::shared_ptr<BlockRegistry> registry() const { return BlockRegistry::at(path_, kGpuSms); }
  RankBlocks rank_blocks(uint64_t issuer, uint64_t group) const {
    return {registry(), device_, issuer, group};
  }
  void make_two_at_once(uint64_t issuers) const;

  static inline int devices = 1000;
  const int device_ = devices++;
  const std::string path_ = testing::TempDir() + "/weft-agreement-" + std::to_string(getpid()) +
                            "-" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

// `issuers`: 4 threads make the calls of the two communicators, or 2 threads those of both.
void BlockAgreementTest::make_two_at_once(uint64_t issuers) const {
  for (uint64_t round = 0; round < 200; round++) {
    AgreeingTeam first(2, 2 * round), second(2, 2 * round + 1);
    AgreeingTeam* const teams[2] = {&first, &second};
    std::shared_ptr<LaunchSlot> slots[4];
    BlockAgreement agreed[4];
    run_threads(4, [&](int thread) {
      AgreeingTeam& team = *teams[thread / 2];
      RankBlocks mine =
          rank_blocks(issuers * round + static_cast<uint64_t>(thread) % issuers, team.group());
      agreed[thread] = team.agree(thread % 2, mine, kLongWait);
      // Meanwhile the other one finds neither blocks nor a slot.
      std::this_thread::sleep_for(std::chrono::microseconds(round * 100 % 3000));
      slots[thread] = mine.settle(nullptr);
    });
    for (int thread = 0; thread < 4; thread++) {
      ASSERT_NE(slots[thread], nullptr);
      EXPECT_GE(agreed[thread].blocks, 1);
      EXPECT_LE(agreed[thread].blocks, slots[thread]->blocks.blocks());
      EXPECT_EQ(agreed[thread].blocks, agreed[thread ^ 1].blocks);
      EXPECT_EQ(agreed[thread].own, agreed[thread ^ 1].own);
      EXPECT_NE(slots[thread].get(), slots[thread ^ 1].get()) << "they would wait for each other";
    }
    for (auto& slot : slots) slot.reset();
    ASSERT_EQ(registry()->free(), kAllBlocks) << "round " << round;
  }
}

TEST_F(BlockAgreementTest, ServesTwoCommunicatorsMadeAtOnceByNewThreads) { make_two_at_once(4); }
TEST_F(BlockAgreementTest, ServesTwoCommunicatorsOfTheSameThreadsMadeAtOnce) {
  make_two_at_once(2);
}

TEST_F(BlockAgreementTest, FailsOnAllRanksWhereAGpuStaysFull) {
  const auto others = registry()->reserve(kAllBlocks);
  AgreeingTeam team(3, 1);
  const auto start = steady_clock::now();
  run_threads(3, [&](int rank) {
    RankBlocks mine = rank_blocks(static_cast<uint64_t>(rank), team.group());
    try {
      team.agree(rank, mine, milliseconds(200));
      ADD_FAILURE() << "rank " << rank << " has blocks";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("no thread block left"), std::string::npos)
          << error.what();
    }
  });
  EXPECT_GE(steady_clock::now() - start, milliseconds(200));
  EXPECT_EQ(registry()->free(), 0);
}

TEST_F(BlockAgreementTest, WaitsForACommunicatorThatEnds) {
  auto others = registry()->reserve(kAllBlocks);
  AgreeingTeam team(2, 1);
  run_threads(3, [&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(50));
      others->release();
      return;
    }
    RankBlocks mine = rank_blocks(static_cast<uint64_t>(rank), team.group());
    const BlockAgreement agreed = team.agree(rank, mine, kLongWait);
    EXPECT_EQ(agreed.blocks, kAllBlocks / 2 - 1) << "one per rank is left";
    EXPECT_TRUE(agreed.own);
  });
}

// What others have taken, from nothing to all but one block per rank.
TEST_F(BlockAgreementTest, GivesAllRanksTheSameNumber) {
  for (int taken = 0; taken <= kAllBlocks - 3; taken += 25)
    for (const int percent : {-1, 0, 25}) {
      const auto others = registry()->reserve(taken);
      AgreeingTeam team(3, 1);
      team.percent = percent;
      BlockAgreement agreed[3];
      run_threads(3, [&](int rank) {
        RankBlocks mine = rank_blocks(static_cast<uint64_t>(rank), team.group());
        agreed[rank] = team.agree(rank, mine, kLongWait);
        const auto slot = mine.settle(nullptr);
        ASSERT_NE(slot, nullptr);
        EXPECT_LE(agreed[rank].blocks, slot->blocks.blocks());
        team.all_gather(rank, "");
      });
      for (const BlockAgreement& one : agreed) {
        EXPECT_GE(one.blocks, 1) << taken << " taken, " << percent << " percent";
        EXPECT_EQ(one.blocks, agreed[0].blocks);
        EXPECT_EQ(one.own, percent != 0);
      }
    }
}

// Kernels of two ranks in one slot would wait for each other.
TEST_F(BlockAgreementTest, NeverPutsTwoRanksOfACommunicatorIntoOneSlot) {
  RankBlocks other = rank_blocks(77, 1);
  ASSERT_TRUE(other.reserve(kAllBlocks));
  const auto slot = other.settle(nullptr);
  RankBlocks first = rank_blocks(1, 2), second = rank_blocks(2, 2), stranger = rank_blocks(3, 3);
  EXPECT_EQ(first.look(false).slot_blocks, 0) << "the slot is of another issuer";
  EXPECT_EQ(first.look(true).slot_blocks, kAllBlocks);
  EXPECT_EQ(second.look(true).slot_blocks, 0);
  EXPECT_EQ(stranger.look(true).slot_blocks, kAllBlocks) << "other communicators take turns";
  EXPECT_EQ(first.look(false).slot_blocks, 0);
  EXPECT_EQ(second.look(true).slot_blocks, kAllBlocks) << "the first one has let go";
}

}  // namespace
}  // namespace weft::test
