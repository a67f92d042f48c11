// The ranks of this process: communicators, buffers and their registration.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "nccl.h"
#include "perf/common/options.h"
#include "perf/common/process.h"
#include "perf/common/split.h"
#include "perf/common/team.h"

namespace weft::perf {

struct Buffer {
  std::byte* memory = nullptr;
  void* registration = nullptr;
  ncclWindow_t window = nullptr;
};

struct LocalRank {
  int global = 0;  // in the job
  int group = 0;   // colour of NCCL_TESTS_SPLIT
  int rank = 0;    // in its group's communicator
  int nranks = 0;
  ncclComm_t world = nullptr;
  ncclComm_t comm = nullptr;  // same as world without a split
  cudaStream_t stream = nullptr;
  Buffer send;
  Buffer recv;
};

// The main thread makes and closes it. Each worker thread uses its own ranks.
class Ranks {
 public:
  // Makes room for rows of max_bytes in both buffers of every local rank.
  Ranks(Process& process, Team& team, const Options& options, size_t max_bytes);

  std::span<LocalRank> of_thread(int thread);
  int job_size() const { return job_size_; }
  int smallest_group() const { return split_.smallest_group(job_size_); }
  const Split& split() const { return split_; }

  // Frees everything. The destructor does not: after an error communicators may be stuck.
  void close();
  // Any thread may call it. Calls ncclCommAbort on all communicators that exist.
  void abort();

 private:
  void connect(std::span<LocalRank> ranks, const ncclUniqueId& id);
  void register_buffers(std::span<LocalRank> ranks);

  const Options& options_;
  Split split_;
  int job_size_;
  size_t buffer_bytes_;
  std::vector<LocalRank> ranks_;
  std::atomic<bool> connected_ = false;
};

}  // namespace weft::perf
