// Send and receive on the GPU: order, sizes, partners; and operators whose scalar is on the device.
#include <gtest/gtest.h>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/pinned.h"
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
