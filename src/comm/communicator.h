// A communicator: one rank's membership in a group of ranks. It brings the parts up that do the
// work, in phases: control channel, agreement on plans, mesh, CPU nodes, GPU.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/control_channel.h"
#include "src/comm/gpu_launcher.h"
#include "src/comm/host_tasks.h"
#include "src/comm/unique_id.h"

namespace weft {

struct CommunicatorOptions {
  UniqueId id;
  int rank = 0, nranks = 1;
  std::string label;          // how messages name it: "rank 3 of 8"
  int device = 0;             // this and the next two matter where there are GPUs
  int max_ctas = 0;           // 0: what NCCL_MAX_CTAS says
  bool copy_engines = false;  // move data without thread blocks where that can be done
  std::string net_name;       // the network to use; empty: the first that works
  std::shared_ptr<const ImportedSchedules> schedules;  // set: instead of the environment's
};

// Calls that move data come from one thread at a time (NCCL's rule); stop() and the queries from
// any thread.
class Communicator {
 public:
  // Joins the rendezvous of the id and connects to all peers. Blocking; throws Error.
  explicit Communicator(CommunicatorOptions options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return options_.rank; }
  int nranks() const { return options_.nranks; }
  host::RankContext& context() { return context_; }
  const Mesh& mesh() const { return *mesh_; }
  // Which plan a call takes, and what it should cost.
  const PlanChooser& chooser() const { return *chooser_; }
  double estimate_us(const Call& call) const;
  // For tools that compare plans: from the next call on, on all ranks alike, such calls run as this
  // generator says; nullptr: as agreed. Throws where they could not.
  void force_plan(CollectiveKind kind, const Generator* generator);

  // nullptr in host mode. With GPUs, calls are launched on their streams, all of a group at once.
  GpuLauncher* gpu() { return gpu_.get(); }
  bool on_gpu() const { return gpu_ != nullptr; }
  void launch(std::span<const Call* const> calls);

  // Host mode: begin() before the first call of a batch, add_to() for each call, hand_over() just
  // before the batch runs, so that CPU nodes of this rank get their parts of its calls.
  void begin() { host_->begin(); }
  void add_to(host::Batch& batch, const Call& call) { host_->add(batch, call); }
  void hand_over() { cpu_nodes_->hand_over(); }

  // Why operations cannot go on; empty while they can. Sticky.
  std::string fault() const;
  ncclResult_t fault_code() const;
  // Takes note of what kernels found wrong meanwhile.
  void poll_gpu();
  // Ends every wait with this text, now and later, and tells the other ranks if `tell` is set.
  void stop(ncclResult_t code, const std::string& why, bool tell);

  // Ids of communicators derived from this one. Split is collective; shrink needs no communication.
  struct Child {
    UniqueId id;
    int rank = -1, nranks = 0;  // rank -1: not a member
    bool opens_rendezvous = false;
  };
  // The number is reserved in the caller's order; the rest may run on another thread.
  uint64_t reserve_split();
  Child split(uint64_t round, int color, int key);
  Child shrink(const std::vector<int>& excluded);

 private:
  void join(Deadline deadline);
  void connect(Deadline deadline);
  void exclude_schedules_that_do_not_fit();
  void start_gpu(Deadline deadline);
  void log_ready(double seconds) const;
  // Leaves in good order: what was sent is delivered, the others are told goodbye.
  void leave();
  Child make_child(const Secret& secret, const std::vector<int>& members) const;
  void on_news(int rank, bool failed, const std::string& why);
  // With the lock of fault_ held.
  void end_waits(ncclResult_t code, const std::string& why);

  struct Fault {
    mutable std::mutex mutex;  // also protects what the control thread looks at: see on_news()
    std::string text;
    ncclResult_t code = ncclSuccess;
  };

  const CommunicatorOptions options_;
  const Config config_;
  host::RankContext context_;
  std::vector<std::atomic<bool>> gone_;  // per rank, then per CPU node
  Fault fault_;
  std::unique_ptr<ControlChannel> control_;
  std::unique_ptr<PlanChooser> chooser_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<OperationBuilder> operations_;
  std::unique_ptr<LoweredPlans> plans_;
  std::unique_ptr<CpuNodes> cpu_nodes_;  // they use plans and the mesh
  std::unique_ptr<HostTasks> host_;
  std::unique_ptr<GpuLauncher> gpu_;
  std::map<uint64_t, uint64_t> shrinks_;  // how often each set of ranks has been left out
  std::atomic<bool> ready_{false};        // all of the above are there
};

}  // namespace weft
