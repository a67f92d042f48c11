// Send and receive on the GPU: order, sizes, partners; and operators whose scalar is on the device.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/gpu_processes.h"
#include "tests/gpu/support/pinned.h"
#include "tests/gpu/support/process_rank.h"
#include "tests/gpu/support/team.h"
#include "tests/support/processes.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

class Messages : public GpuTest {};

// `count` numbers that identify their message.
int* put(const Rank& me, size_t count, uint64_t name) {
  std::vector<int> host(count);
  for (size_t i = 0; i < count; ++i) host[i] = static_cast<int>(mix(name, i % 1021) >> 40);
  int* memory = reinterpret_cast<int*>(me.arena->take(count * 4 + 4));
  upload(memory, host.data(), count * 4, me.stream());
  return memory;
}

int* room(const Rank& me, size_t count) { return put(me, count, 999999); }

void expect_message(const Rank& me, const int* memory, size_t count, uint64_t name) {
  std::vector<int> host(count);
  download(host.data(), memory, count * 4, me.stream());
  for (size_t i = 0; i < count; ++i) {
    if (host[i] == static_cast<int>(mix(name, i % 1021) >> 40)) continue;
    ADD_FAILURE() << "rank " << me.rank << ": element " << i << " of " << count << " of message "
                  << name << " is wrong";
    return;
  }
}

TEST_F(Messages, BetweenTwoRanksKeepTheirOrderInAGroup) {
  run_team(2, [](Rank& me) {
    const size_t sizes[] = {5, 100000, 1, 33, 4096, 70000, 0, 2};
    std::vector<int*> out, in;
    for (uint64_t k = 0; k < 8; ++k) {
      out.push_back(put(me, sizes[k], 10 * k + static_cast<uint64_t>(me.rank)));
      in.push_back(room(me, sizes[k]));
    }
    me.meet();
    for (int turn = 0; turn < 10; ++turn) {
      WEFT_OK(ncclGroupStart());
      for (size_t k = 0; k < 8; ++k)
        WEFT_OK(ncclSend(out[k], sizes[k], ncclInt32, 1 - me.rank, me.comm(), me.stream()));
      for (size_t k = 0; k < 8; ++k)
        WEFT_OK(ncclRecv(in[k], sizes[k], ncclInt32, 1 - me.rank, me.comm(), me.stream()));
      WEFT_OK(ncclGroupEnd());
    }
    for (uint64_t k = 0; k < 8; ++k)
      expect_message(me, in[k], sizes[k], 10 * k + static_cast<uint64_t>(1 - me.rank));
  });
}

// The messages of a group between two ranks, and how the two make the calls.
struct Exchange {
  std::vector<size_t> sizes;
  bool grouped[2] = {true, true};
};
// Rank 0 sends, rank 1 receives.
void exchange(const Rank& me, const Exchange& e, const std::vector<int*>& memory) {
  const bool grouped = e.grouped[me.rank];
  if (grouped) {
    WEFT_OK(ncclGroupStart());
  }
  for (size_t k = 0; k < e.sizes.size(); ++k) {
    if (me.rank == 0) {
      WEFT_OK(ncclSend(memory[k], e.sizes[k], ncclInt32, 1, me.comm(), me.stream()));
    } else {
      WEFT_OK(ncclRecv(memory[k], e.sizes[k], ncclInt32, 0, me.comm(), me.stream()));
    }
  }
  if (grouped) {
    WEFT_OK(ncclGroupEnd());
  }
}
std::vector<int*> memory_of(const Rank& me, const std::vector<size_t>& sizes) {
  std::vector<int*> memory;
  for (uint64_t k = 0; k < sizes.size(); ++k)
    memory.push_back(me.rank == 0 ? put(me, sizes[k], k) : room(me, sizes[k]));
  return memory;
}

TEST_F(Messages, BetweenTwoRanksAreOneKernelInAGroup) {
  run_team(2, [](Rank& me) {
    size_t alone = 0;  // kernels of one message
    for (const std::vector<size_t>& sizes :
         {std::vector<size_t>{10}, {1, 2, 3, 4, 5}, {5, 8000, 100000, 20000}, {50000, 60000}}) {
      me.arena->reset();
      const std::vector<int*> memory = memory_of(me, sizes);
      me.meet();
      const Graph graph(me.stream(), [&] { exchange(me, {sizes}, memory); });
      if (sizes.size() == 1) alone = graph.kernels();
      EXPECT_EQ(graph.kernels(), alone) << sizes.size() << " messages";
      me.meet();
      for (int turn = 0; turn < 3; ++turn) graph.replay(me.stream());
      for (uint64_t k = 0; k < sizes.size(); ++k) expect_message(me, memory[k], sizes[k], k);
      me.meet();
    }
  });
}

TEST_F(Messages, OfAGroupNeedNoGroupOnTheOtherSide) {
  run_team(2, [](Rank& me) {
    for (const std::vector<size_t>& sizes :
         {std::vector<size_t>{20000, 30000, 400000}, {3, 5000, 5000, 1}, {20000, 7, 30000, 8}})
      for (const bool sender : {true, false}) {
        me.arena->reset();
        const std::vector<int*> memory = memory_of(me, sizes);
        me.meet();
        for (int turn = 0; turn < 5; ++turn) exchange(me, {sizes, {sender, !sender}}, memory);
        for (uint64_t k = 0; k < sizes.size(); ++k) expect_message(me, memory[k], sizes[k], k);
        me.meet();
      }
  });
}

// More messages than a kernel takes, to all peers at once.
TEST_F(Messages, AreAsManyAsTheGroupHas) {
  run_team(4, [](Rank& me) {
    constexpr uint64_t kMessages = 21;
    const auto size = [](uint64_t k) { return size_t{1} + k % 3 * 9000 + k; };
    std::vector<int*> out, in;
    for (int p = 0; p < me.nranks; ++p)
      for (uint64_t k = 0; k < kMessages; ++k) {
        out.push_back(put(me, size(k), k + 100 * static_cast<uint64_t>(me.rank)));
        in.push_back(room(me, size(k)));
      }
    me.meet();
    for (int turn = 0; turn < 3; ++turn) {
      WEFT_OK(ncclGroupStart());
      for (uint64_t k = 0; k < kMessages; ++k)
        for (int p = 0; p < me.nranks; ++p) {
          const size_t at = static_cast<size_t>(p) * kMessages + k;
          WEFT_OK(ncclSend(out[at], size(k), ncclInt32, p, me.comm(), me.stream()));
          WEFT_OK(ncclRecv(in[at], size(k), ncclInt32, p, me.comm(), me.stream()));
        }
      WEFT_OK(ncclGroupEnd());
    }
    for (int p = 0; p < me.nranks; ++p)
      for (uint64_t k = 0; k < kMessages; ++k)
        expect_message(me, in[static_cast<size_t>(p) * kMessages + k], size(k),
                       k + 100 * static_cast<uint64_t>(p));
  });
}

TEST_F(Messages, OfAnySizeGoFromEveryRankToEveryRankAndToItself) {
  run_team(5, [](Rank& me) {
    const auto size = [](int from, int to) {
      return static_cast<size_t>(mix(static_cast<uint64_t>(from), static_cast<uint64_t>(to)) %
                                 (from == to ? 10 : 50000));
    };
    const auto name = [](int from, int to) { return static_cast<uint64_t>(from * 100 + to); };
    std::vector<int*> out, in;
    for (int p = 0; p < me.nranks; ++p) {
      out.push_back(put(me, size(me.rank, p), name(me.rank, p)));
      in.push_back(room(me, size(p, me.rank)));
    }
    me.meet();
    for (int turn = 0; turn < 5; ++turn) {
      WEFT_OK(ncclGroupStart());
      for (int p = 0; p < me.nranks; ++p) {
        const auto at = static_cast<size_t>(p);
        WEFT_OK(ncclRecv(in[at], size(p, me.rank), ncclInt32, p, me.comm(), me.stream()));
        WEFT_OK(ncclSend(out[at], size(me.rank, p), ncclInt32, p, me.comm(), me.stream()));
      }
      WEFT_OK(ncclGroupEnd());
    }
    for (int p = 0; p < me.nranks; ++p)
      expect_message(me, in[static_cast<size_t>(p)], size(p, me.rank), name(p, me.rank));
  });
}

TEST_F(Messages, PassDownAPipelineWithoutGroups) {
  run_team(4, [](Rank& me) {
    const size_t count = 30000;
    int* data = me.rank == 0 ? put(me, count, 42) : room(me, count);
    me.meet();
    for (int turn = 0; turn < 20; ++turn) {
      if (me.rank > 0) {
        WEFT_OK(ncclRecv(data, count, ncclInt32, me.rank - 1, me.comm(), me.stream()));
      }
      if (me.rank + 1 < me.nranks) {
        WEFT_OK(ncclSend(data, count, ncclInt32, me.rank + 1, me.comm(), me.stream()));
      }
    }
    expect_message(me, data, count, 42);
  });
}

TEST_F(Messages, OfTwoRanksDoNotConcernTheOthers) {
  run_team(4, [](Rank& me) {
    int* data = me.rank == 3 ? put(me, 5000, 7) : room(me, 5000);
    const auto all = me.make(make_case(Operation::kAllReduce, 9000));
    me.meet();
    for (int turn = 0; turn < 10; ++turn) {
      if (me.rank == 3) {
        WEFT_OK(ncclSend(data, 5000, ncclInt32, 1, me.comm(), me.stream()));
      }
      if (me.rank == 1) {
        WEFT_OK(ncclRecv(data, 5000, ncclInt32, 3, me.comm(), me.stream()));
      }
      all->refill(me.stream());
      WEFT_OK(all->launch(me.stream()));
    }
    expect_right(all->check(me.stream()));
    if (me.rank == 1) expect_message(me, data, 5000, 7);
  });
}

// Every rank sends several messages to all ranks in one group. All bytes of a message are equal.
WEFT_SCENARIO(several_messages) {
  ProcessRank me(context);
  Arena arena(size_t{64} << 20, Origin::kCudaMalloc);
  const size_t sizes[] = {40, 7, 20000, 300000, 100001, 3, 900000};
  constexpr size_t kMessages = std::size(sizes);
  const auto value = [](int from, int to, size_t k) {
    return static_cast<int>((static_cast<size_t>(from * 5 + to) * kMessages + k) % 120) + 1;
  };
  std::vector<char*> out, in;
  for (int p = 0; p < me.nranks(); ++p)
    for (size_t k = 0; k < kMessages; ++k) {
      out.push_back(arena.take(sizes[k]));
      in.push_back(arena.take(sizes[k]));
      WEFT_CUDA(cudaMemsetAsync(out.back(), value(me.rank(), p, k), sizes[k], me.stream()));
      WEFT_CUDA(cudaMemsetAsync(in.back(), 0, sizes[k], me.stream()));
    }
  for (int turn = 0; turn < 3; ++turn) {
    WEFT_OK(ncclGroupStart());
    for (size_t i = 0; i < out.size(); ++i) {
      const int peer = static_cast<int>(i / kMessages);
      const size_t bytes = sizes[i % kMessages];
      WEFT_OK(ncclSend(out[i], bytes, ncclInt8, peer, me.comm(), me.stream()));
      WEFT_OK(ncclRecv(in[i], bytes, ncclInt8, peer, me.comm(), me.stream()));
    }
    WEFT_OK(ncclGroupEnd());
  }
  for (size_t i = 0; i < in.size(); ++i) {
    std::vector<char> seen(sizes[i % kMessages]);
    download(seen.data(), in[i], seen.size(), me.stream());
    const int wanted = value(static_cast<int>(i / kMessages), me.rank(), i % kMessages);
    EXPECT_TRUE(std::ranges::all_of(seen, [&](char byte) { return byte == wanted; }))
        << "message " << i % kMessages << " of rank " << i / kMessages;
  }
  me.meet(arena);
}

class ProcessMessages : public GpuProcesses {};

TEST_F(ProcessMessages, MayBeSeveralToEachPeer) { play("several_messages", 3); }
TEST_F(ProcessMessages, OfAGroupShareASmallStage) {
  play("several_messages", 2, "", {{"WEFT_SCRATCH_BYTES", "1M"}, {"WEFT_SHARE_BUFFERS", "0"}});
}
TEST_F(ProcessMessages, OfAGroupGoThroughHostMemory) {
  play("several_messages", 3, "", {{"NCCL_P2P_DISABLE", "1"}, {"WEFT_RING_BYTES", "128K"}});
}

// The library reads a scalar in device memory when the call runs, not when it is made.
WEFT_SCENARIO(scalar_on_the_device) {
  run_team(2, [](Rank& me) {
    const size_t count = 1000;
    auto* in = reinterpret_cast<float*>(me.arena->take(count * 4));
    auto* out = reinterpret_cast<float*>(me.arena->take(count * 8));
    auto* scalar = reinterpret_cast<float*>(me.arena->take(4));
    const std::vector<float> ones(count, 1.0f);
    const Pinned pinned(2 * sizeof(float));  // copied while kernels wait
    auto* factors = pinned.data<float>();
    factors[0] = 3.0f;
    factors[1] = 5.0f;
    upload(in, ones.data(), count * 4, me.stream());
    ncclRedOp_t op = ncclSum;
    WEFT_OK(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat32, ncclScalarDevice, me.comm()));
    me.meet();
    for (size_t i = 0; i < 2; ++i) {
      WEFT_CUDA(cudaMemcpyAsync(scalar, &factors[i], 4, cudaMemcpyHostToDevice, me.stream()));
      WEFT_OK(ncclAllReduce(in, out + i * count, count, ncclFloat32, op, me.comm(), me.stream()));
    }
    std::vector<float> host(2 * count);
    download(host.data(), out, 2 * count * 4, me.stream());
    for (size_t i = 0; i < 2 * count; ++i) {
      if (host[i] == 2 * factors[i / count]) continue;
      ADD_FAILURE() << "element " << i << " is " << host[i] << ", expected "
                    << 2 * factors[i / count];
      break;
    }
    WEFT_OK(ncclRedOpDestroy(op, me.comm()));
  });
}

// This runs in its own process: reading device memory from the host would end the process.
TEST(DeviceScalar, IsReadWhenTheCallRuns) {
  ProcessOptions options;
  options.limit = std::chrono::seconds(25);
  run_ranks_as_processes("scalar_on_the_device", 1, options);
}

}  // namespace
}  // namespace weft::test
