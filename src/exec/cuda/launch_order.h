// Operations of one communicator follow each other in the order of the calls, whatever streams they
// are on, whether they run at once or are captured, and whichever graph is replayed when: their
// kernels share counters, and every rank must see the same order.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <vector>

#include "src/exec/cuda/device_store.h"
#include "src/exec/stream_gate.h"

namespace weft::cuda {

// Used like its executor: by one thread at a time, with the executor's device current.
class LaunchOrder {
 public:
  // `mixing`: graphs are also ordered with calls and other graphs on other streams, by an event
  // (NCCL_GRAPH_MIXING_SUPPORT).
  explicit LaunchOrder(bool mixing) : mixing_(mixing) {}
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  // What is launched between begin() and end() goes to the first stream; the others are joined and
  // wait for it. The turn is to be kept until end().
  [[nodiscard]] StreamGate::Pass begin(std::span<const cudaStream_t> streams);
  void end(std::span<const cudaStream_t> streams);

  // Of the launch under way.
  cudaStream_t stream() const { return stream_; }
  bool is_captured() const { return is_captured_; }
  // Whether a kernel launched now may start early, waiting by itself for what is before it.
  bool may_start_early() const { return may_start_early_; }
  // Whether what is before it in a capture is this communicator's last operation, and that one was
  // a kernel that reaches into memory.
  bool follows_program() const { return follows_own_ && capture_.program_last; }
  // Said after every kernel.
  void launched(bool program) {
    if (is_captured_) capture_.program_last = program;
  }
  // Something else than a kernel is before it now.
  void forbid_early_start() { may_start_early_ = false; }
  // Waits for everything launched so far.
  void synchronize() noexcept;

 private:
  struct Capture {
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    std::vector<cudaGraphNode_t> last;  // what the next operation of this capture follows
    cudaGraphNode_t record = nullptr;   // tells those outside that the graph's last one is done
    std::vector<cudaGraphNode_t> record_by;  // what that node follows
    bool program_last = false;               // see launched()
  };
  bool capturing(cudaStream_t stream, Capture& seen) const;
  bool follows_kernel(cudaStream_t stream) const;
  void begin_captured(cudaStream_t stream, const Capture& now);
  void end_captured();

  const bool mixing_;
  const PooledResource kept_join_{DeviceStore::Kind::kEvent},
      kept_order_{DeviceStore::Kind::kEvent};
  const cudaEvent_t join_ = kept_join_.event();    // brings the streams of one launch together
  const cudaEvent_t order_ = kept_order_.event();  // behind the last operation, wherever it was
  cudaStream_t stream_ = nullptr;
  StreamGate gate_;
  bool called_ = false;       // outside captures
  uint64_t called_on_ = 0;    // id of the stream of the last call; 0: not known
  bool has_graphs_ = false;   // there has been a capture: replays come without a call
  bool unseen_ = false;       // the same without mixing: nothing tells of replays
  bool is_captured_ = false;  // the launch under way
  bool may_start_early_ = false, follows_own_ = false;
  Capture capture_;
};

}  // namespace weft::cuda
