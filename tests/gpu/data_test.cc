// Difficult data: unaligned pointers, zero elements, more than 4 GiB.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/gpu/support/gpu.h"
#include "tests/gpu/support/team.h"
#include "tests/support/require.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

class Unaligned : public GpuTest, public testing::WithParamInterface<Operation> {};

TEST_P(Unaligned, PointersGiveRightResults) {
  run_team(3, [](Rank& me) {
    for (const ncclDataType_t type : {ncclInt8, ncclFloat16, ncclFloat32, ncclFloat64}) {
      const size_t size = type_of(type).bytes;
      for (size_t offset = size; offset < 16; offset += size) {
        // The offsets of source and destination differ, and ranks differ too.
        const size_t other = (offset * 7 + static_cast<size_t>(me.rank) * size) % 16 / size * size;
        for (const size_t count : {size_t{1}, size_t{33}, size_t{5000}, size_t{70001}}) {
          Case c = make_case(GetParam(), count, type);
          c.salt = mix(offset, count);
          me.run(c, {offset, other});
          c.in_place = true;
          if (can_be_in_place(c.operation)) me.run(c, {offset, offset});
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Every, Unaligned, testing::ValuesIn(all_operations()),
                         [](const auto& tested) { return name_of(tested.param); });

class Nothing : public GpuTest {};

TEST_F(Nothing, IsMovedByACountOfZero) {
  run_team(3, [](Rank& me) {
    for (const Operation operation : all_operations()) {
      me.run(make_case(operation, 0));
      // All buffers are null.
      WEFT_OK(issue(make_case(operation, 0),
                    {me.rank, me.nranks, me.comm(), nullptr, nullptr, ncclSum, me.stream()}));
      me.run(make_case(operation, 10));  // the next call still works
    }
  });
}

TEST_F(Nothing, CanBeCapturedAndReplayed) {
  run_team(2, [](Rank& me) {
    const auto nothing = me.make(make_case(Operation::kAllReduce, 0));
    const auto something = me.make(make_case(Operation::kAllReduce, 10));
    const Graph graph(me.stream(), [&] {
      WEFT_OK(nothing->launch(me.stream()));
      WEFT_OK(something->launch(me.stream()));
    });
    me.meet();
    for (int i = 0; i < 5; ++i) graph.replay(me.stream());
    expect_right(something->check(me.stream()));
    me.meet();
  });
}

// More than 2^32 bytes per buffer. WEFT_TEST_LARGE_BYTES sets a smaller size for a small GPU.
class MoreThan4GiB : public GpuTest {
 protected:
  MoreThan4GiB() : GpuTest(std::chrono::seconds(60)) {}
  static size_t bytes() {
    const char* given = std::getenv("WEFT_TEST_LARGE_BYTES");
    return given != nullptr ? std::strtoull(given, nullptr, 0) : (size_t{1} << 32) + 4 * 1021 + 8;
  }
  // "" or why the test is skipped: there is not enough GPU memory.
  static std::string short_of(size_t needed) {
    size_t free = 0, total = 0;
    WEFT_CUDA(cudaMemGetInfo(&free, &total));
    if (free > needed + (size_t{2} << 30)) return "";
    return "needs " + std::to_string(needed >> 30) + " GiB of GPU memory";
  }
};

// The data repeat with a prime period, so an offset wrong by 2^31 or 2^32 bytes reads other data.
constexpr size_t kPeriodBytes = 8 * 131071;

std::vector<uint32_t> period(int rank, uint32_t factor = 1) {
  std::vector<uint32_t> data(kPeriodBytes / 4);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<uint32_t>(mix(static_cast<uint64_t>(rank), i) & 0xffffff) * factor;
  return data;
}

// Writes the period once and doubles it on the device.
void fill_with(char* memory, size_t bytes, const std::vector<uint32_t>& data, cudaStream_t stream) {
  const size_t first = std::min(bytes, kPeriodBytes);
  WEFT_CUDA(cudaMemcpyAsync(memory, data.data(), first, cudaMemcpyHostToDevice, stream));
  for (size_t done = first; done < bytes; done += std::min(done, bytes - done))
    WEFT_CUDA(cudaMemcpyAsync(memory + done, memory, std::min(done, bytes - done),
                              cudaMemcpyDeviceToDevice, stream));
  WEFT_CUDA(cudaStreamSynchronize(stream));
}

// Compares everything, a few periods at a time. "" or the place of the first error.
std::string compare_with(const char* memory, size_t bytes, const std::vector<uint32_t>& data,
                         char* pinned, cudaStream_t stream) {
  constexpr size_t kStep = 32 * kPeriodBytes;
  for (size_t at = 0; at < bytes; at += kStep) {
    const size_t size = std::min(kStep, bytes - at);
    WEFT_CUDA(cudaMemcpyAsync(pinned, memory + at, size, cudaMemcpyDeviceToHost, stream));
    WEFT_CUDA(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < size; i += kPeriodBytes)
      if (std::memcmp(pinned + i, data.data(), std::min(kPeriodBytes, size - i)) != 0)
        return "wrong within 1 MiB after byte " + std::to_string(at + i);
  }
  return "";
}

struct PinnedSamples {
  PinnedSamples() { WEFT_CUDA(cudaMallocHost(&memory, 32 * kPeriodBytes)); }
  ~PinnedSamples() { cudaFreeHost(memory); }
  char* data() const { return static_cast<char*>(memory); }
  void* memory = nullptr;
};

TEST_F(MoreThan4GiB, AreReducedRight) {
  if (const std::string lack = short_of(4 * bytes()); !lack.empty()) WEFT_SKIP("large", lack);
  PinnedSamples pinned[2];
  run_team(2,
           [&](Rank& me) {
             const size_t size = bytes() / 4 * 4;
             char* in = me.arena->take(size);
             char* out = me.arena->take(size);
             char* spare = pinned[me.rank].data();
             std::vector<uint32_t> sum = period(0);
             const std::vector<uint32_t> other = period(1);
             for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
             fill_with(in, size, period(me.rank), me.stream());
             me.meet();
             WEFT_OK(ncclAllReduce(in, out, size / 4, ncclUint32, ncclSum, me.comm(), me.stream()));
             expect_right(compare_with(out, size, sum, spare, me.stream()));
             me.meet();
             // As bytes: more than 2^32 elements, in place.
             WEFT_OK(ncclAllReduce(in, in, size, ncclUint8, ncclMax, me.comm(), me.stream()));
             std::vector<uint32_t> most = period(0);
             auto* a = reinterpret_cast<unsigned char*>(most.data());
             const auto* b = reinterpret_cast<const unsigned char*>(other.data());
             for (size_t i = 0; i < kPeriodBytes; ++i) a[i] = std::max(a[i], b[i]);
             expect_right(compare_with(in, size, most, spare, me.stream()));
           },
           {.arena_bytes = 2 * (bytes() + 4096), .limit = std::chrono::seconds(50)});
}

TEST_F(MoreThan4GiB, AreGatheredRight) {
  if (const std::string lack = short_of(6 * bytes()); !lack.empty()) WEFT_SKIP("large", lack);
  PinnedSamples pinned[2];
  run_team(2,
           [&](Rank& me) {
             const size_t size = bytes();  // not a multiple of 16: the second block is not aligned
             char* in = me.arena->take(size);
             char* out = me.arena->take(2 * size);
             char* spare = pinned[me.rank].data();
             fill_with(in, size, period(me.rank), me.stream());
             me.meet();
             WEFT_OK(ncclAllGather(in, out, size, ncclInt8, me.comm(), me.stream()));
             for (int r = 0; r < 2; ++r)
               expect_right(compare_with(out + static_cast<size_t>(r) * size, size, period(r),
                                         spare, me.stream()));
             me.meet();
             // The same by send and receive, from one block to the other.
             WEFT_OK(ncclGroupStart());
             WEFT_OK(ncclSend(in, size, ncclInt8, 1 - me.rank, me.comm(), me.stream()));
             WEFT_OK(ncclRecv(out, size, ncclInt8, 1 - me.rank, me.comm(), me.stream()));
             WEFT_OK(ncclGroupEnd());
             expect_right(compare_with(out, size, period(1 - me.rank), spare, me.stream()));
           },
           {.arena_bytes = 3 * (bytes() + 4096), .limit = std::chrono::seconds(50)});
}

}  // namespace
}  // namespace weft::test
