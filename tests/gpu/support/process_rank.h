// One rank per process: the objects that its scenario needs, made in the right order.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "tests/gpu/support/arena.h"
#include "tests/gpu/support/device_case.h"
#include "tests/support/processes.h"
#include "tests/support/watchdog.h"

namespace weft::test {

// A rank, its communicator and a stream. Ends the process after 20 s without a note.
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
  // The watchdog prints this if the process hangs.
  void note(const std::string& what) { watchdog_.note(0, what); }

  // Runs cases in an arena. Reports the first failures and counts the rest.
  void run(const std::vector<Case>& cases, Arena& arena);
  // Waits for all other ranks (by an all_reduce in `arena`).
  void meet(Arena& arena);
  // For ranks that abort their communicator: the destructor then leaves it alone.
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
