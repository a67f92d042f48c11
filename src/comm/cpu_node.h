// A CPU node of a communicator: a further peer with FIFOs and lanes of its own. A thread of this
// process runs its lanes. For GPUs that talk over the host bridge, some plans let CPU nodes reduce.
// The communicator of one rank owns the node, and hands it its part of every call.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/mesh.h"
#include "src/exec/host/batch.h"
#include "src/schedule/program.h"

namespace weft {

// The thread that makes calls uses submit() and finish(). Any thread may call stop().
class CpuNode {
 public:
  // Called on the node's thread when an operation fails for another reason than stop().
  using Listener = std::function<void(ncclResult_t code, const std::string& text)>;

  // Peers can connect as soon as the node exists. `mesh` is the node's own, made by the second
  // constructor of Mesh. `owner` is the rank's context; the node copies its label and limits.
  CpuNode(std::unique_ptr<Mesh> mesh, const host::RankContext& owner, Listener listener);
  ~CpuNode();
  CpuNode(const CpuNode&) = delete;
  CpuNode& operator=(const CpuNode&) = delete;

  int number() const { return context_.rank; }  // its peer number, after those of the ranks
  // Connects to all ranks and CPU nodes of the host. Their arenas must exist.
  void connect(Deadline deadline, ControlChannel& control);
  // Called before the first job if peers are GPUs. GPUs ring no doorbell, so the node polls for
  // messages. Kernels start when their streams let them, so the node has no timeout; kernels do.
  void serve_gpus() {
    context_.longest_sleep_ns = 20'000;
    context_.timeout_s = context_.stall_warning_s = 0;
  }

  // `program` must outlive the node. The first call starts the thread.
  struct Job {
    const Program* program = nullptr;
    Operation operation;  // without scratch memory and ports
  };
  void submit(std::span<const Job> jobs);

  // Ends every present and future wait of the node.
  void stop() noexcept;
  // Waits at most `seconds` until all jobs are done, then ends the thread.
  void finish(double seconds);

 private:
  void work();
  bool take(std::vector<Job>& jobs);
  bool run(const Job& job);

  host::RankContext context_;
  std::unique_ptr<Mesh> mesh_;
  Listener listener_;
  host::Batch batch_;
  Mapping scratch_;
  std::thread thread_;
  // Calls take the lock only if their plan has CPU nodes. It is held only to move the job list.
  std::mutex mutex_;
  std::vector<Job> jobs_;
  bool busy_ = false, leaving_ = false;
};

}  // namespace weft
