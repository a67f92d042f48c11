// The kernel for small exchanges through host FIFOs, run on the host beside the interpreter. Each
// must understand the other's messages.
#include <gtest/gtest.h>

#include "algorithms/generators/building.h"
#include "src/exec/cuda/kernels/ring_exchange_kernel.cuh"
#include "src/exec/cuda/ring_exchange_arguments.h"
#include "tests/exec/world.h"

namespace weft::test {
namespace {

constexpr uint32_t kThreads = 8;  // at least one per rank; a GPU would have 32

template <typename Type, typename Op>
void run_block(const cuda::RingExchangeArguments& arguments) {
  typename cuda::RingExchange<Type, Op>::Shared shared;
  cuda::EmulatedBlock(kThreads).run(
      [&](uint32_t) { cuda::exchange_through_rings<Type, Op>(arguments, shared); });
}

// Runs the ranks whose programs are one-round exchanges, and counts them.
class Kernel {
 public:
  bool run(const Program& program, Operation op, std::string& wrong) {
    const std::optional<OneRoundShape> shape = one_round_shape(program);
    if (!shape || !cuda::fits_ring_exchange(op)) return false;
    // Callers pass only the buffers that they must.
    if (shape->send_to == 0 && !shape->sums_own && !shape->copies_own) op.input = nullptr;
    if (shape->receive_from == 0 && !shape->copies_own) op.output = nullptr;
    cuda::RingExchangeArguments a = cuda::ring_exchange_arguments(op, *shape);
    cuda::HostFlags flags;
    a.comm.rank = program.rank;
    a.comm.nranks = program.collective.nranks;
    a.comm.flags = &flags;
    a.comm.timeout_ns = uint64_t{30} * 1'000'000'000;
    for (size_t i = 0; i < program.sends.size(); i++)
      a.ports[program.sends[i].peer].send = op.sends[i];
    for (size_t i = 0; i < program.receives.size(); i++)
      a.ports[program.receives[i].peer].receive = op.receives[i];
    if (shape->reduces) {
      run_block<cuda::Native<int32_t>, cuda::AnyOperator>(a);
    } else {
      run_block<cuda::Bytes, cuda::Sum>(a);
    }
    if (flags.error != 0) wrong = "the kernel reports an error";
    ran_++;
    return true;
  }
  int ran() const { return ran_; }

 private:
  std::atomic<int> ran_ = 0;
};

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce,     CollectiveKind::kAllGather,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                     CollectiveKind::kReduce,        CollectiveKind::kAllToAll};

// Makes calls of several sizes, one after the other over the same small FIFOs.
void run_calls(World::Wire wire, std::initializer_list<const Generator*> generators, int n) {
  World world(n, 16384, wire);
  Kernel kernel;
  int ranks = 0;
  for (const uint64_t count : {1, 3, 64, 257, 700})
    for (const Generator* generator : generators)
      for (const CollectiveKind kind : kKinds)
        for (const bool in_place : {false, true}) {
          WorldCall call{generator, {kind, n, n - 1}, in_place, count, 4096};
          call.gap = static_cast<uint64_t>(ranks / n % 3);  // as in parts of a call
          if (!generator->supports(call.collective)) continue;
          // An in-place all-to-all takes another schedule.
          if (in_place && kind == CollectiveKind::kAllToAll) continue;
          ranks += n;
          const std::string wrong = world.run_in_threads(
              call, [&](const Program& program, const Operation& op, std::string& why) {
                return kernel.run(program, op, why);
              });
          ASSERT_EQ(wrong, "") << generator->name << " " << name(kind) << " count " << count
                               << (in_place ? " in place" : "");
        }
  EXPECT_GE(world.most_rounds(), 2u) << "rings must come round";
  EXPECT_GT(kernel.ran(), ranks / 4);
  EXPECT_LT(kernel.ran(), ranks) << "interpreters, too";
}

TEST(RingExchangeKernel, GivesRightResults) {
  for (const int n : {2, 5}) run_calls(World::Wire::kMemory, {&kOneShot, &kOneRound}, n);
}
TEST(RingExchangeKernel, TalksToInterpreters) {
  run_calls(World::Wire::kMemory, {&kRecursive, &kRing, &kOneRound}, 3);
}
TEST(RingExchangeKernel, WorksOverTheNetwork) {
  run_calls(World::Wire::kWatched, {&kRecursive, &kOneShot, &kOneRound}, 3);
}

// Rank 1 passes its data on to several peers at once. Only interpreters do that. The other ranks
// are one-round exchanges.
Schedule make_fork(const Collective& c, bool) {
  Schedule s = blank("fork", c, 1, 1);
  add(s.ranks[0].lanes[0], {Operand::input(0)}, {Operand::output(0), Operand::peer(1)});
  Operands to = {Operand::output(0)};
  for (int r = 2; r < c.nranks; r++) to.push_back(Operand::peer(r));
  add(s.ranks[1].lanes[0], {Operand::peer(0)}, std::move(to));
  for (int r = 2; r < c.nranks; r++)
    add(s.ranks[static_cast<size_t>(r)].lanes[0], {Operand::peer(1)}, {Operand::output(0)});
  return s;
}

TEST(RingExchangeKernel, UnderstandsMessagesThatShareTheirData) {
  const Generator fork = {"fork", "", [](const Collective&) { return true; }, make_fork, false, 1};
  World world(4, 16384, World::Wire::kWatched);
  Kernel kernel;
  for (const uint64_t count : {1, 100, 700}) {
    WorldCall call{&fork, {CollectiveKind::kBroadcast, 4, 0}, false, count, 4096};
    call.share_from = 1;
    const std::string wrong =
        world.run_in_threads(call, [&](const Program& program, const Operation& op,
                                       std::string& why) { return kernel.run(program, op, why); });
    ASSERT_EQ(wrong, "") << count;
  }
  EXPECT_EQ(kernel.ran(), 9) << "all but rank 1";
}

TEST(RingExchangeKernel, ReportsACallThatIsNotThePeers) {
  World world(2, 16384);
  const WorldCall call{&kOneShot, {CollectiveKind::kAllReduce, 2, 0}, false, 100, 4096};
  Kernel kernel;
  const std::string wrong =
      world.run_in_threads(call, [&](const Program& program, Operation op, std::string& why) {
        if (program.rank == 1) op.root = 1;
        return kernel.run(program, op, why);
      });
  EXPECT_NE(wrong.find("reports an error"), std::string::npos) << wrong;
}

}  // namespace
}  // namespace weft::test
