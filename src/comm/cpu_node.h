// A CPU node of a communicator: a further end of FIFOs, with lanes of its own, which a thread of
// this process runs. Where ranks are GPUs that talk over the host bridge, plans let CPU nodes
// reduce for them. Owned by the communicator of one of its ranks, which hands it every call whose
// plan has a part for it.
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

// submit() and finish() are called by the thread that makes calls, stop() by any.
class CpuNode {
 public:
  // Told, on the node's thread, of an operation that failed for another reason than stop().
  using Listener = std::function<void(ncclResult_t code, const std::string& text)>;

  // Can be connected to as soon as it is made. `mesh` is the node's own, of which it is no member:
  // see Mesh. `owner` is the rank's context, whose label and limits are taken over.
  CpuNode(std::unique_ptr<Mesh> mesh, const host::RankContext& owner, Listener listener);
  ~CpuNode();
  CpuNode(const CpuNode&) = delete;
  CpuNode& operator=(const CpuNode&) = delete;

  int number() const { return context_.rank; }  // behind those of the ranks
  // To all ranks and CPU nodes of the host, when their arenas are there.
  void connect(Deadline deadline);
  // Before the first job: peers are GPUs. They ring no bell, so the node looks for messages by
  // itself; they come when their streams let them, so only kernels know what is late.
  void serve_gpus() {
    context_.longest_sleep_ns = 20'000;
    context_.timeout_s = context_.stall_warning_s = 0;
  }

  // `program` must outlive the node. The first call starts the thread.
  struct Job {
    const Program* program = nullptr;
    Operation operation;  // all but scratch memory and ports
  };
  void submit(std::span<const Job> jobs);

  // Ends every wait of the node, now and later.
  void stop() noexcept;
  // Lets it do what it was given, for at most `seconds`, and ends the thread.
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
  // Calls take the lock only where a plan has CPU nodes, and nobody holds it for long.
  std::mutex mutex_;
  std::vector<Job> jobs_;
  bool busy_ = false, leaving_ = false;
};

}  // namespace weft
