// See team.h.
#include "tests/gpu/support/team.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/gpu/support/gpu.h"

namespace weft::test {

std::unique_ptr<DeviceCase> Rank::make(const Case& c, Offsets offsets) const {
  return std::make_unique<DeviceCase>(c, rank, nranks, comm(), *arena, stream(), offsets);
}

void Rank::run(const Case& c, Offsets offsets) const {
  arena->reset();
  expect_right(run_device_case(c, rank, nranks, comm(), *arena, stream(), offsets));
}

void run_team(int n, const std::function<void(Rank&)>& fn, const TeamOptions& options) {
  WEFT_CUDA(cudaSetDevice(0));
  std::vector<ncclUniqueId> ids;
  for (int i = 0; i < options.comms; ++i) ids.push_back(new_unique_id());
  std::barrier<> everyone(n);
  std::vector<std::unique_ptr<Arena>> arenas;
  std::vector<Rank> ranks;
  std::vector<cudaStream_t> streams;
  for (int r = 0; r < n; ++r) {
    arenas.push_back(std::make_unique<Arena>(options.arena_bytes, Origin::kCudaMalloc));
    Rank rank{r, n, {}, {}, arenas.back().get(), &everyone};
    for (int s = 0; s < options.streams; ++s)
      rank.streams.push_back(stream_number(static_cast<size_t>(r * options.streams + s)));
    streams.insert(streams.end(), rank.streams.begin(), rank.streams.end());
    ranks.push_back(rank);
  }
  if (options.used_streams) use_at_once(streams);
  run_threads(
      n,
      [&](int r) {
        Rank& me = ranks[static_cast<size_t>(r)];
        for (const ncclUniqueId& id : ids) {
          ncclConfig_t config = options.config.value_or(ncclConfig_t NCCL_CONFIG_INITIALIZER);
          ncclComm_t comm = nullptr;
          if (!succeeded(ncclCommInitRankConfig(&comm, n, id, r, &config),
                         "ncclCommInitRankConfig"))
            throw std::runtime_error("no communicator");
          me.comms.push_back(comm);
        }
        me.meet();
        try {
          fn(me);
        } catch (const std::exception& e) {
          ADD_FAILURE() << "rank " << r << ": " << e.what();
          // Without the abort the others would wait until the watchdog ends the program.
          for (const ncclComm_t comm : me.comms) ncclCommAbort(comm);
          me.comms.clear();
        }
        everyone.arrive_and_drop();
        for (const cudaStream_t stream : me.streams)
          EXPECT_STREQ(cudaGetErrorString(cudaStreamSynchronize(stream)), "no error");
        for (const ncclComm_t comm : me.comms) {
          ncclResult_t state = ncclSuccess;
          WEFT_OK(ncclCommGetAsyncError(comm, &state));
          EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comm);
          WEFT_OK(ncclCommDestroy(comm));
        }
      },
      options.limit);
}

Case make_case(Operation operation, size_t count, ncclDataType_t type) {
  Case c;
  c.operation = operation;
  c.count = count;
  c.type = type;
  return c;
}

void expect_right(const std::string& bad) { EXPECT_EQ(bad, ""); }

}  // namespace weft::test
