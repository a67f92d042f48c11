// A communicator: one rank's membership in a group of ranks. It starts its parts in phases: control
// channel, agreement on plans, CPU nodes, mesh, GPU. The parts do the work.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/communicator_options.h"
#include "src/comm/control_channel.h"
#include "src/comm/gpu_launcher.h"
#include "src/comm/host_tasks.h"
#include "src/comm/vigil.h"

namespace weft {

// One thread at a time makes calls that move data (NCCL's rule). Any thread may call stop() and the
// queries.
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
  const host::RankContext& context() const { return context_; }
  // Names the communicator.
  uint64_t key() const { return public_key(options_.id.secret); }
  const Mesh& mesh() const { return *mesh_; }
  const PlanChooser& chooser() const { return *chooser_; }
  // The predicted time of a call in microseconds; 0: unknown.
  double estimate_us(const Call& call) const;
  // For tools that compare plans. From the next call on, calls of this kind take the generator's
  // plan; nullptr: the agreed plan. All ranks must force the same. Throws if the plan cannot run.
  void force_plan(CollectiveKind kind, const Generator* generator);

  // nullptr in host mode.
  GpuLauncher* gpu() { return gpu_.get(); }
  bool on_gpu() const { return gpu_ != nullptr; }
  // GPUs: launches all calls of a group on their streams.
  void launch(std::span<const Call* const> calls);

  // Host mode: begin() before the first call of a batch, add_to() for each call, hand_over() just
  // before the batch runs. hand_over() gives this rank's CPU nodes their parts of the calls.
  void begin() { host_->begin(); }
  // add_to() gives up if ranks disagree.
  void add_to(host::Batch& batch, const Call& call);
  void hand_over() { cpu_nodes_->hand_over(); }
  // In words: a message that nobody received; empty: there is none, or operations have failed.
  std::string unreceived() const { return on_gpu() || stopped() ? "" : host_->unreceived(); }

  // Why operations cannot go on. The same on all ranks, unless this rank stopped by itself.
  const FaultState& faults() const { return vigil_.faults; }
  // Every present and future wait ends.
  bool stopped() const { return context_.stop.load(std::memory_order_acquire) != 0; }
  // Throws the reason if it is stopped.
  void check() const;
  // Gives up if a kernel has reported an error.
  void poll_gpu();
  // This rank ends its part, with this text. `tell`: tells the other ranks, too.
  void stop(ncclResult_t code, const std::string& why, bool tell);
  // An operation failed here, so no rank can go on. Returns what all ranks report. `text` is empty
  // if the operation ended because of what this rank had heard.
  FaultState::Answer give_up(ncclResult_t code, const std::string& text);
  // The same without a wait for what others report.
  void announce(ncclResult_t code, const std::string& text);

  // Ids of communicators derived from this one. Split is collective; shrink needs no communication.
  struct Child {
    UniqueId id;
    int rank = -1, nranks = 0;  // rank -1: not a member
    bool opens_rendezvous = false;
  };
  // The caller reserves the round in the order of its calls. split() may run on another thread.
  uint64_t reserve_split();
  Child split(uint64_t round, int color, int key);
  Child shrink(const std::vector<int>& excluded);

 private:
  void join(Deadline deadline);
  void settle_rendezvous(const std::vector<PeerInfo>& infos, Deadline deadline);
  void connect(Deadline deadline);
  void exclude_schedules_that_do_not_fit();
  void start_gpu(Deadline deadline);
  void log_ready(double seconds) const;
  // Delivers all sent data, then tells the other ranks goodbye.
  void leave();
  Child make_child(const Secret& secret, const std::vector<int>& members) const;
  // Control thread.
  void hear(const News& news);
  // After this the control thread does not call hear() any more.
  void silence();
  void end_waits();
  News report(News::Kind kind, ncclResult_t code, const std::string& text) const;

  const CommunicatorOptions options_;
  const Config config_;
  host::RankContext context_;
  std::vector<std::atomic<bool>> gone_;  // per rank, then per CPU node
  Vigil vigil_;
  std::unique_ptr<ControlChannel> control_;
  std::unique_ptr<PlanChooser> chooser_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<OperationBuilder> operations_;
  std::unique_ptr<LoweredPlans> plans_;
  std::unique_ptr<CpuNodes> cpu_nodes_;  // destroyed before plans_, whose programs it runs
  std::unique_ptr<HostTasks> host_;
  std::unique_ptr<GpuLauncher> gpu_;
  std::map<uint64_t, uint64_t> shrinks_;  // per hash of excluded ranks: the number of shrinks
};

}  // namespace weft
