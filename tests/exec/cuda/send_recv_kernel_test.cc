// The kernel of send and receive on the host: every rank is one thread block. Several messages
// between two ranks, in a group or each on its own.
#include "src/exec/cuda/kernels/send_recv_kernel.cuh"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "src/exec/cuda/send_recv_arguments.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace): it tests most of it

constexpr uint32_t kBlockThreads = 32;  // at least one per port and message
constexpr uint64_t kNoStage = UINT64_MAX;
constexpr size_t kLarge = 40000;  // does not go in packets

struct Release {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{256}); }
};
using MailboxMemory = std::unique_ptr<std::byte, Release>;

void run_block(const SendRecvArguments& a) {
  auto shared = std::make_unique<SendRecvState>();
  EmulatedBlock(kBlockThreads).run([&](uint32_t t) {
    shared->ports.take(PacketPorts::ask(a.mine, a.ports), a.ports);
    if (t == 0) shared->stopped = false;
    __syncthreads();
    if (all_in_packets(a)) {
      SendRecvRunner<true>(a, *shared).run();
    } else {
      SendRecvRunner<false>(a, *shared).run();
    }
  });
}

// Ranks with mailboxes, over which their kernels run one after the other.
class Ranks {
 public:
  explicit Ranks(int n) : flags_(static_cast<size_t>(n)) {
    const auto ports = static_cast<uint32_t>(kPacketChannels * n);
    const size_t bytes = mailbox_bytes(1, ports);
    for (int r = 0; r < n; r++) {
      memory_.emplace_back(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256})));
      std::fill_n(memory_.back().get(), bytes, std::byte{});
    }
    for (int r = 0; r < n; r++) {
      DeviceComm& comm = comms_.emplace_back();
      comm.rank = r;
      comm.nranks = n;
      comm.flags = &flags_[static_cast<size_t>(r)];
      comm.timeout_ns = uint64_t{60} * 1'000'000'000;
      comm.packet_ctas = 1;
      comm.ports = ports;
      for (int p = 0; p < n; p++)
        comm.mailboxes[p] = reinterpret_cast<Mailbox*>(memory_[static_cast<size_t>(p)].get());
    }
  }

  // A group of `rank`. Returns the number of kernels.
  size_t run(int rank, const std::vector<GpuMessage>& sends,
             const std::vector<GpuMessage>& receives) {
    const DeviceComm& comm = comms_[static_cast<size_t>(rank)];
    auto out = into_kernels(sends, comm.nranks, kNoStage),
         in = into_kernels(receives, comm.nranks, kNoStage);
    out.resize(std::max(out.size(), in.size()));
    in.resize(out.size());
    for (size_t k = 0; k < out.size(); k++) {
      SendRecvArguments a;
      a.comm = comm;
      a.mine = comm.mailboxes[rank];
      a.ports = comm.ports;
      const SendRecvBlocks blocks = {1, 1, 1 << 20};
      for (const GpuMessage& m : out[k])
        add_message(a, blocks, m.pointer, m.bytes, m.peer, reinterpret_cast<uint64_t>(m.pointer),
                    true);
      for (const GpuMessage& m : in[k])
        add_message(a, blocks, m.pointer, m.bytes, m.peer, 0, false);
      EXPECT_EQ(finish(a), 1u);
      run_block(a);
    }
    EXPECT_EQ(flags_[static_cast<size_t>(rank)].error, 0u) << "rank " << rank;
    return out.size();
  }

 private:
  std::vector<MailboxMemory> memory_;
  std::vector<HostFlags> flags_;
  std::vector<DeviceComm> comms_;
};

// One message, with the memory of both ends.
struct Letter {
  Letter(int sender, int receiver, size_t bytes, uint64_t name)
      : from(sender), to(receiver), in(bytes) {
    for (size_t i = 0; i < bytes; i++) out.push_back(static_cast<uint8_t>(mix(name, i)));
  }
  int from, to;
  std::vector<uint8_t> out, in;
};

enum class Grouping { kAll, kNone };

// All messages of `rank` in one group, or each as a group of its own. Returns the kernels.
size_t send_and_receive(Ranks& ranks, std::vector<Letter>& letters, int rank, Grouping grouping) {
  std::vector<GpuMessage> sends, receives;
  size_t kernels = 0;
  const auto run = [&] {
    kernels += ranks.run(rank, sends, receives);
    sends.clear();
    receives.clear();
  };
  for (Letter& letter : letters) {
    if (letter.from == rank) sends.push_back({letter.out.data(), letter.out.size(), letter.to});
    if (letter.to == rank) receives.push_back({letter.in.data(), letter.in.size(), letter.from});
    if (grouping == Grouping::kNone && sends.size() + receives.size() > 0) run();
  }
  run();
  return kernels;
}

// Returns the kernels of rank 0.
size_t exchange(Ranks& ranks, std::vector<Letter>& letters,
                const std::vector<Grouping>& groupings) {
  size_t kernels = 0;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < groupings.size(); r++)
    threads.emplace_back([&, r] {
      const size_t mine = send_and_receive(ranks, letters, static_cast<int>(r), groupings[r]);
      if (r == 0) kernels = mine;
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < letters.size(); i++)
    EXPECT_TRUE(letters[i].in == letters[i].out)
        << "message " << i << " of " << letters[i].out.size() << " bytes from rank "
        << letters[i].from << " to rank " << letters[i].to << " is wrong";
  return kernels;
}

std::vector<Letter> between_two(std::initializer_list<size_t> sizes, bool both_ways) {
  std::vector<Letter> letters;
  for (const size_t bytes : sizes) {
    letters.emplace_back(0, 1, bytes, letters.size());
    if (both_ways) letters.emplace_back(1, 0, bytes, letters.size());
  }
  return letters;
}

TEST(SendRecvKernel, TakesSeveralMessagesOfAPeerAtOnce) {
  Ranks ranks(2);
  for (const std::initializer_list<size_t> sizes :
       {std::initializer_list<size_t>{5, 100, 1, 3000, 8},  // in packets
        {20000, 7, 30000, 20001},                           // of several slots each
        {kLarge, kLarge + 1, 2 * kLarge},
        {12, 25000, kLarge, kLarge + 3},
        {kLarge}}) {
    std::vector<Letter> letters = between_two(sizes, true);
    EXPECT_EQ(exchange(ranks, letters, {Grouping::kAll, Grouping::kAll}), 1u);
  }
}

TEST(SendRecvKernel, NeedsNoGroupOnTheOtherSide) {
  Ranks ranks(2);
  for (int turn = 0; turn < 2; turn++)
    for (const auto& [sender, receiver] :
         {std::pair{Grouping::kAll, Grouping::kNone}, {Grouping::kNone, Grouping::kAll}})
      for (const std::initializer_list<size_t> sizes :
           {std::initializer_list<size_t>{kLarge, kLarge + 16, kLarge + 5},
            {9, 20000, 20000, 33},
            {kLarge, 10, kLarge, 11}}) {
        std::vector<Letter> letters = between_two(sizes, false);
        exchange(ranks, letters, {sender, receiver});
      }
}

TEST(SendRecvKernel, KeepsTheOrderOfRandomMessagesBetweenAllRanks) {
  std::mt19937_64 random(test_seed());
  for (const int n : {2, 3}) {
    Ranks ranks(n);
    for (int turn = 0; turn < 3; turn++) {
      std::vector<Letter> letters;
      for (int i = 0; i < 8 * n; i++) {
        const size_t sizes[] = {1 + random() % 64, 1 + random() % 32768, 32769 + random() % 9000};
        letters.emplace_back(static_cast<int>(random() % static_cast<unsigned>(n)),
                             static_cast<int>(random() % static_cast<unsigned>(n)),
                             sizes[random() % 3], random());
      }
      exchange(ranks, letters, std::vector(static_cast<size_t>(n), Grouping::kAll));
    }
  }
}

TEST(SendRecvKernels, TakeAsManyMessagesAsThereIsRoomForAnnouncements) {
  std::byte memory[64];
  const auto kernels_of = [&](int nranks, size_t messages) {
    return into_kernels(std::vector<GpuMessage>(messages, {memory, 8, 1}), nranks, kNoStage).size();
  };
  EXPECT_EQ(kernels_of(2, 16), 1u);
  EXPECT_EQ(kernels_of(2, 17), 2u);
  EXPECT_EQ(kernels_of(8, 4), 1u);
  EXPECT_EQ(kernels_of(8, 5), 2u);
  EXPECT_EQ(kernels_of(20, 2), 2u);
}

TEST(SendRecvKernels, HandlePacketsFirst) {
  std::vector<std::byte> memory(3 * kLarge);
  std::byte* at = memory.data();
  EXPECT_EQ(into_kernels(std::vector<GpuMessage>{{at, 8, 1}, {at, kLarge, 1}}, 2, kNoStage).size(),
            1u);
  EXPECT_EQ(into_kernels(std::vector<GpuMessage>{{at, kLarge, 1}, {at, 8, 1}}, 2, kNoStage).size(),
            2u);
  EXPECT_EQ(into_kernels(std::vector<GpuMessage>{{at, kLarge, 1}, {at, 8, 0}}, 2, kNoStage).size(),
            1u);
}

// What a receiver expects does not depend on what else the sender has in its group.
TEST(SendRecvKernels, CutMessagesAtTheStageAndKeepTheirOrder) {
  constexpr uint64_t kStage = 100000;
  std::vector<std::byte> memory(6 * kStage);
  std::byte* at = memory.data();
  const auto kernels = into_kernels(
      std::vector<GpuMessage>{
          {at, 40000, 1}, {at + kStage, 50000, 1}, {at + 2 * kStage, 250000, 1}},
      2, kStage);
  ASSERT_EQ(kernels.size(), 4u);
  ASSERT_EQ(kernels[0].size(), 2u);
  size_t sum = 0;
  for (const auto& kernel : kernels) {
    size_t bytes = 0;
    for (const GpuMessage& m : kernel) bytes += m.bytes;
    EXPECT_LE(bytes, kStage);
    sum += bytes;
  }
  EXPECT_EQ(sum, 340000u);
  EXPECT_EQ(kernels[1][0].pointer, at + 2 * kStage);
  EXPECT_EQ(kernels[3][0].pointer, at + 4 * kStage);
  EXPECT_EQ(kernels[3][0].bytes, 50000u);
}

}  // namespace
}  // namespace weft::test
