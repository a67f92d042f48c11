// Operations of one communicator run in the order of the calls: on any streams, direct or captured,
// whichever graph is replayed. Their kernels share counters, and every rank must see the same
// order.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <vector>

#include "src/exec/cuda/device_store.h"
#include "src/exec/stream_gate.h"

namespace weft::cuda {

// One thread at a time uses it, like its executor, with the executor's device current.
class LaunchOrder {
 public:
  // `mixing`: an event also orders graphs with calls and with graphs on other streams
  // (NCCL_GRAPH_MIXING_SUPPORT).
  explicit LaunchOrder(bool mixing) : mixing_(mixing) {}
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  // Work between begin() and end() goes to the first stream. The other streams are joined and wait
  // for it. The caller keeps the pass until end().
  [[nodiscard]] StreamGate::Pass begin(std::span<const cudaStream_t> streams);
  void end(std::span<const cudaStream_t> streams);

  // These describe the current launch.
  cudaStream_t stream() const { return stream_; }
  bool is_captured() const { return is_captured_; }
  // If it is captured. No two captures of a process have the same number.
  cudaGraph_t graph() const { return capture_.graph; }
  unsigned long long capture_number() const { return capture_.id; }
  // Whether a kernel launched now may start early and wait for its predecessor itself.
  bool may_start_early() const { return may_start_early_; }
  // Whether the predecessor in a capture is this communicator's last operation, and that was a
  // kernel that accesses peers' memory.
  bool follows_program() const { return follows_own_ && capture_.program_last; }
  // Called after every kernel. `program`: the kernel accesses peers' memory.
  void launched(bool program) {
    if (is_captured_) capture_.program_last = program;
  }
  // The predecessor is now something other than a kernel.
  void forbid_early_start() { may_start_early_ = false; }
  // Whether all launched work is done. Any thread.
  bool is_done() const;
  // Waits until all launched work is done.
  void synchronize() noexcept;

 private:
  struct Capture {
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    std::vector<cudaGraphNode_t> last;  // the next operation of this capture follows these
    // Its event tells work outside that the graph's last operation is done.
    cudaGraphNode_t record = nullptr;
    std::vector<cudaGraphNode_t> record_by;  // the record node follows these
    bool program_last = false;               // see launched()
  };
  bool capturing(cudaStream_t stream, Capture& seen) const;
  bool follows_kernel(cudaStream_t stream) const;
  void begin_captured(cudaStream_t stream, const Capture& now);
  void end_captured();

  const bool mixing_;
  const PooledResource kept_join_{DeviceStore::Kind::kEvent},
      kept_order_{DeviceStore::Kind::kEvent};
  const cudaEvent_t join_ = kept_join_.event();  // joins the streams of one launch
  // Recorded after the last operation, on whatever stream.
  const cudaEvent_t order_ = kept_order_.event();
  cudaStream_t stream_ = nullptr;
  StreamGate gate_;
  bool called_ = false;       // outside captures
  uint64_t called_on_ = 0;    // id of the stream of the last call; 0: unknown
  bool has_graphs_ = false;   // there has been a capture; replays come without a call
  bool unseen_ = false;       // the same without mixing: nothing announces replays
  bool is_captured_ = false;  // of the current launch
  bool may_start_early_ = false, follows_own_ = false;
  Capture capture_;
};

}  // namespace weft::cuda
