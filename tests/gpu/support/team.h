// Ranks as threads that share device 0. Their memory, streams and communicators are made before any
// rank launches a kernel.
#pragma once

#include <barrier>
#include <functional>
#include <optional>
#include <vector>

#include "nccl.h"
#include "tests/gpu/support/arena.h"
#include "tests/gpu/support/device_case.h"
#include "tests/gpu/support/graph.h"
#include "tests/support/threads.h"

namespace weft::test {

// The state of one thread of a team.
struct Rank {
  int rank, nranks;
  std::vector<ncclComm_t> comms;
  std::vector<cudaStream_t> streams;
  Arena* arena;
  std::barrier<>* everyone;

  ncclComm_t comm() const { return comms.front(); }
  cudaStream_t stream() const { return streams.front(); }
  // Waits for all ranks. Call it before and after code that allocates (graphs, communicators).
  void meet() const { everyone->arrive_and_wait(); }
  // This rank's part of a case, with its buffers filled.
  std::unique_ptr<DeviceCase> make(const Case& c, Offsets offsets = {}) const;
  // Runs one case; a failure becomes a test failure.
  void run(const Case& c, Offsets offsets = {}) const;
};

struct TeamOptions {
  int comms = 1;
  int streams = 1;            // per rank; ranks times streams must not exceed kStreams
  bool used_streams = false;  // whether use_at_once() was called on them
  size_t arena_bytes = size_t{48} << 20;
  std::optional<ncclConfig_t> config;
  std::chrono::milliseconds limit = std::chrono::seconds(20);
};

void run_team(int n, const std::function<void(Rank&)>& fn, const TeamOptions& options = {});

// A case with the defaults of Case.
Case make_case(Operation operation, size_t count, ncclDataType_t type = ncclFloat32);

// Reports an error from check() or run_device_case().
void expect_right(const std::string& bad);

}  // namespace weft::test
