// Ranks as threads that share device 0, with their memory, streams and communicators made before
// the first of them launches anything.
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

// What one thread of a team has.
struct Rank {
  int rank, nranks;
  std::vector<ncclComm_t> comms;
  std::vector<cudaStream_t> streams;
  Arena* arena;
  std::barrier<>* everyone;

  ncclComm_t comm() const { return comms.front(); }
  cudaStream_t stream() const { return streams.front(); }
  // Waits for all ranks: before a part that allocates (graphs, communicators), and after it.
  void meet() const { everyone->arrive_and_wait(); }
  // A case of this rank, filled.
  std::unique_ptr<DeviceCase> make(const Case& c, Offsets offsets = {}) const;
  // Runs one case; a failure becomes a test failure.
  void run(const Case& c, Offsets offsets = {}) const;
};

struct TeamOptions {
  int comms = 1;
  int streams = 1;            // per rank; ranks times streams must not exceed kStreams
  bool used_streams = false;  // by use_at_once()
  size_t arena_bytes = size_t{48} << 20;
  std::optional<ncclConfig_t> config;
  std::chrono::milliseconds limit = std::chrono::seconds(20);
};

void run_team(int n, const std::function<void(Rank&)>& fn, const TeamOptions& options = {});

// A case with the defaults of Case.
Case make_case(Operation operation, size_t count, ncclDataType_t type = ncclFloat32);

// Reports what check() or run_device_case() found.
void expect_right(const std::string& bad);

}  // namespace weft::test
