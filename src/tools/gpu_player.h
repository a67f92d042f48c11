// Plays calls of one rank on a GPU, for `weft run --gpu` and schedule_perf. Ranks may share a GPU,
// as threads of this process or as processes.
#pragma once

#include <thread>

#include "src/comm/communicator.h"
#include "src/exec/cuda/rank_device.h"
#include "src/tools/played_call.h"

namespace weft {

// Called before CUDA starts, if ranks are threads: every rank needs a hardware queue of its own.
// What the user has set stays.
void ask_for_hardware_queues();
// Throws if this process has no GPU.
void require_gpu();
// Ranks take the devices in turn.
int device_of_rank(int rank);

// The device must be large enough for all calls, and outlive the kernels of all ranks.
class GpuPlayer : public Player {
 public:
  GpuPlayer(Communicator& communicator, cuda::RankDevice& device);

  void take(const PlayedCall& call) override;
  Call call() override;
  void fill() override;
  void run() override;
  uint64_t count_wrong() override;

  // Puts the call on the rank's stream, or into the graph that is being recorded.
  void launch();
  // Waits for the stream. Throws what a kernel has found.
  void wait();
  // Looks at no more than so many outputs at either end.
  uint64_t count_wrong_at_ends(uint64_t most);

 private:
  uint64_t count_wrong_in(uint64_t first, uint64_t end);

  Communicator& comm_;
  cuda::RankDevice& device_;
  const PlayedCall* played_ = nullptr;
  // Ends the waits of all kernels when one has found an error, as ncclCommGetAsyncError() does.
  // The rank's own thread may be waiting for them.
  std::jthread watch_;
};

}  // namespace weft
