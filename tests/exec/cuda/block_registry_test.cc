// The registry of reserved thread blocks: between threads and processes, and when one of them dies.
#include "src/exec/cuda/block_registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "src/exec/cuda/block_share.h"

namespace weft::test {
namespace {

using cuda::block_budget;
using cuda::BlockClaim;
using cuda::BlockRegistry;
using cuda::BlockReservation;
using cuda::blocks_per_rank;

constexpr int kSms = 132, kBudget = 128;

TEST(BlockBudget, LeavesAFewSmsFree) {
  EXPECT_EQ(block_budget(132), 128);
  EXPECT_EQ(block_budget(40), 38);
  EXPECT_EQ(block_budget(8), 6);
  EXPECT_EQ(block_budget(1), 0);
  for (int sms = 3; sms < 400; sms++) {
    EXPECT_GE(sms - block_budget(sms), 2) << sms;
    EXPECT_GE(100 * (sms - block_budget(sms)), 3 * sms) << sms;
  }
}

// A file of its own for every test.
class BlockRegistryTest : public testing::Test {
 protected:
  void TearDown() override { unlink(path_.c_str()); }
  std::shared_ptr<BlockRegistry> open() const { return BlockRegistry::at(path_, kSms); }

  // A child that runs `body`, and then `work` again and again until it is killed; the pipe tells
  // when it is ready. It must not start threads: ThreadSanitizer forbids that after a fork.
  template <typename Body>
  pid_t child(
      Body body, void (*work)() = [] { pause(); }) const {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      const char answer = body() ? '+' : '-';
      [[maybe_unused]] const ssize_t written = write(ready[1], &answer, 1);
      for (;;) work();
    }
    close(ready[1]);
    char answer = 0;
    EXPECT_EQ(read(ready[0], &answer, 1), 1) << "the child has died";
    EXPECT_EQ(answer, '+');
    close(ready[0]);
    return pid;
  }
  static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  const std::string path_ = testing::TempDir() + "/weft-blocks-test-" + std::to_string(getpid()) +
                            "-" + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(BlockRegistryTest, HandsOutNoMoreThanTheBudget) {
  const auto registry = open();
  EXPECT_EQ(registry->free(), kBudget);
  auto most = registry->reserve(kBudget - 1);
  ASSERT_TRUE(most);
  EXPECT_FALSE(registry->reserve(2)) << "all or nothing";
  auto last = registry->reserve(1);
  ASSERT_TRUE(last);
  EXPECT_EQ(registry->free(), 0);
  most->release();
  EXPECT_EQ(registry->free(), kBudget - 1);
  *last = BlockReservation();
  EXPECT_EQ(registry->free(), kBudget);
  EXPECT_FALSE(registry->reserve(0));
}

TEST_F(BlockRegistryTest, KeepsAReservationThatMoves) {
  const auto registry = open();
  BlockReservation kept;
  {
    auto made = registry->reserve(10);
    kept = std::move(*made);
  }
  EXPECT_EQ(registry->free(), kBudget - 10);
  EXPECT_EQ(kept.blocks(), 10);
}

TEST_F(BlockRegistryTest, CountsOtherProcesses) {
  const pid_t other = child([&] {
    static auto kept = open()->reserve(100);
    return kept.has_value();
  });
  EXPECT_EQ(open()->free(), kBudget - 100);
  EXPECT_FALSE(open()->reserve(29));
  EXPECT_TRUE(open()->reserve(28));
  end(other);
}

TEST_F(BlockRegistryTest, ForgetsProcessesThatDied) {
  const pid_t other = child([&] {
    static auto kept = open()->reserve(100);
    return kept.has_value();
  });
  ASSERT_EQ(open()->free(), kBudget - 100);
  end(other);
  EXPECT_EQ(open()->free(), kBudget);
}

// Data loaders fork: they must not keep their parent's blocks when it dies.
TEST_F(BlockRegistryTest, ForgetsAProcessWhoseChildLives) {
  int numbers[2];
  ASSERT_EQ(pipe(numbers), 0);
  const pid_t parent = child([&] {
    static auto kept = open()->reserve(100);
    const pid_t grandchild = fork();
    if (grandchild == 0)
      for (;;) pause();
    return kept.has_value() && write(numbers[1], &grandchild, sizeof grandchild) > 0;
  });
  ASSERT_EQ(open()->free(), kBudget - 100);
  end(parent);
  EXPECT_EQ(open()->free(), kBudget);
  pid_t grandchild = 0;
  ASSERT_EQ(read(numbers[0], &grandchild, sizeof grandchild),
            static_cast<ssize_t>(sizeof grandchild));
  kill(grandchild, SIGKILL);
}

// Another user may hold the lock of those who reserve.
TEST_F(BlockRegistryTest, DoesNotWaitLongForWhoLocksItsFile) {
  using Clock = std::chrono::steady_clock;
  const auto registry = open();
  auto mine = registry->reserve(8);
  ASSERT_TRUE(mine);
  const pid_t other = child([&] {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_len = 1;
    return fcntl(::open(path_.c_str(), O_RDWR), F_SETLK, &lock) == 0;
  });
  const auto start = Clock::now();
  std::vector<std::thread> threads(6);
  for (auto& thread : threads) thread = std::thread([&] { EXPECT_FALSE(registry->reserve(8)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto given = Clock::now();
  mine->release();
  EXPECT_LT(Clock::now() - given, std::chrono::seconds(1)) << "those who give back do not wait";
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(registry->reserve(8));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5)) << "they wait together, and once";
  end(other);
  EXPECT_TRUE(registry->reserve(8));
}

// Other users may write and cut the file: nothing that a process relies on is in it.
TEST_F(BlockRegistryTest, RemainsRightWhateverIsWrittenIntoItsFile) {
  const pid_t other = child([&] {
    static auto kept = open()->reserve(100);
    return kept.has_value();
  });
  const auto registry = open();
  auto mine = registry->reserve(8);
  // Through a child, because a process loses its locks with any descriptor of the file.
  for (const size_t size : {size_t{0}, size_t{1} << 20, size_t{100}, size_t{0}}) {
    const pid_t writer = child([&] {
      const std::vector<char> bytes(size, static_cast<char>(0xff));
      const int fd = ::open(path_.c_str(), O_WRONLY | O_TRUNC);
      return write(fd, bytes.data(), size) == static_cast<ssize_t>(size);
    });
    EXPECT_EQ(registry->free(), kBudget - 108);
    EXPECT_FALSE(registry->reserve(21));
    const auto rest = registry->reserve(20);
    ASSERT_TRUE(rest);
    EXPECT_EQ(registry->free(), 0);
    end(writer);
  }
  mine->release();
  EXPECT_EQ(registry->free(), kBudget - 100);
  end(other);
  EXPECT_EQ(registry->free(), kBudget);
}

// A stranger's locks, of any range, only take blocks away.
TEST_F(BlockRegistryTest, LosesBlocksAndNothingElseToWhoLocksTheRestOfTheFile) {
  const auto registry = open();
  auto mine = registry->reserve(8);
  const pid_t stranger = child([&] {
    struct flock all {};
    all.l_type = F_WRLCK;
    all.l_start = 40;  // up to the end of every file
    return fcntl(::open(path_.c_str(), O_RDWR), F_SETLK, &all) == 0;
  });
  EXPECT_EQ(registry->free(), 39 - 8);
  EXPECT_FALSE(registry->reserve(32));
  EXPECT_TRUE(registry->reserve(31));
  end(stranger);
  EXPECT_EQ(registry->free(), kBudget - 8);
}

// Kernels refuse O_CREAT for files of others in folders like /dev/shm (fs.protected_regular).
TEST_F(BlockRegistryTest, IsSharedWithAnotherUserWhoMadeIt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  const std::string folder = path_ + ".d", file = folder + "/blocks";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder.c_str(), 01777), 0);
  const int made = creat(file.c_str(), 0666);
  ASSERT_EQ(fchmod(made, 0666), 0);
  ASSERT_EQ(fchown(made, 65534, 65534), 0);
  close(made);
  EXPECT_EQ(BlockRegistry::at(file, kSms)->free(), kBudget);
  unlink(file.c_str());
  rmdir(folder.c_str());
}

TEST_F(BlockRegistryTest, IsNeverOverdrawnByThreadsAndProcessesAtOnce) {
  std::vector<pid_t> others;
  static std::shared_ptr<BlockRegistry> of_child;
  for (int i = 0; i < 3; i++)
    others.push_back(child(
        [&] {
          of_child = open();
          return true;
        },
        [] { of_child->reserve(1 + rand() % 60); }));
  const auto registry = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; i++) {
        const auto mine = registry->reserve(1 + (i * 7 + t) % 60);
        const int left = registry->free();
        EXPECT_GE(left, 0);
        EXPECT_LE(left + (mine ? mine->blocks() : 0), kBudget);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const pid_t pid : others) end(pid);
  EXPECT_EQ(registry->free(), kBudget);
}

TEST(BlocksPerRank, AreEqualForAllRanksAndFitTheFullestGpu) {
  const std::vector<BlockClaim> two_gpus = {{"a", 100, 0}, {"a", 100, 0}, {"b", 20, 0}};
  EXPECT_EQ(blocks_per_rank(two_gpus, 50, 128), 10);
  EXPECT_EQ(blocks_per_rank(two_gpus, 100, 128), 20);
  EXPECT_EQ(blocks_per_rank(two_gpus, 0, 128), 0) << "the user wants no reservation";
  const std::vector<BlockClaim> alone = {{"a", 127, 0}, {"b", 60, 0}};
  EXPECT_EQ(blocks_per_rank(alone, -1, 128), 30);
  EXPECT_EQ(blocks_per_rank(alone, 100, 128), cuda::kOwnGpuBlocks);
  const std::vector<BlockClaim> shared(4, {"a", kBudget, 0});
  EXPECT_EQ(blocks_per_rank(shared, -1, 128), 31) << "one is left for the next communicator";
  const std::vector<BlockClaim> limited = {{"a", 127, 0}, {"b", 127, 4}};
  EXPECT_EQ(blocks_per_rank(limited, 50, 128), 4);
  const std::vector<BlockClaim> full = {{"a", 1, 0}, {"b", 127, 0}};
  EXPECT_EQ(blocks_per_rank(full, 50, 128), 1);
  const std::vector<BlockClaim> none = {{"a", 0, 0}, {"b", 127, 0}};
  EXPECT_EQ(blocks_per_rank(none, 50, 128), 0) << "calls take other slots";
}

TEST(BlocksPerRank, SufficeForEightCommunicatorsOfFourRanksThatAskForAQuarter) {
  int free = kBudget;
  for (int communicator = 0; communicator < 8; communicator++) {
    const int blocks = blocks_per_rank(std::vector<BlockClaim>(4, {"a", free, 0}), 25, 128);
    EXPECT_GE(blocks, 1) << communicator;
    free -= 4 * blocks;
    EXPECT_GE(free, 0);
  }
}

}  // namespace
}  // namespace weft::test
