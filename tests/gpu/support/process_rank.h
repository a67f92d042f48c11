// One rank per process: what its scenario needs, made in the right order.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "tests/gpu/support/arena.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/processes.h"
#include "tests/support/watchdog.h"

namespace weft::test {

// A rank, its communicator and a stream. Ends the process when nothing happens for 20 s.
class ProcessRank {
 public:
  explicit ProcessRank(const ProcessContext& context);
  ~ProcessRank();
  ProcessRank(const ProcessRank&) = delete;
  ProcessRank& operator=(const ProcessRank&) = delete;

  int rank() const { return rank_; }
  int nranks() const { return nranks_; }
  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  void use_stream(cudaStream_t stream) { stream_ = stream; }
  // What the watchdog says from now on.
  void note(const std::string& what) { watchdog_.note(0, what); }

  // Runs cases in an arena; the first failures are reported, the rest counted.
  void run(const std::vector<Case>& cases, Arena& arena);
  // Waits for all other ranks (by an all_reduce in `arena`).
  void meet(Arena& arena);
  // For ranks that end by an abort: the destructor leaves the communicator alone.
  ncclComm_t take() { return std::exchange(comm_, nullptr); }

 private:
  int rank_, nranks_;
  Watchdog watchdog_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t own_ = nullptr, stream_ = nullptr;
};

// Cases that processes go through: every operation at several sizes, then random ones.
std::vector<Case> process_cases(int nranks, int samples, uint64_t seed);

}  // namespace weft::test
