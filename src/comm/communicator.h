// A communicator: one rank's membership in a group of ranks. It starts its parts in phases: control
// channel, agreement on plans, CPU nodes, mesh, GPU. The parts do the work.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/communicator_options.h"
#include "src/comm/control_channel.h"
#include "src/comm/gpu_launcher.h"
#include "src/comm/host_tasks.h"
#include "src/comm/offspring.h"
#include "src/comm/vigil.h"

namespace weft {

class OneSided;

// One thread at a time makes calls that move data. Any thread may call stop() and the queries.
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
  uint64_t key() const { return public_key(options_.id.secret); }  // names the communicator
  std::string shown_name() const;  // in messages: the user's, or the key
  const Mesh& mesh() const { return *mesh_; }
  const PlanChooser& chooser() const { return *chooser_; }
  // The predicted time of a call in microseconds; 0: unknown.
  double estimate_us(const Call& call) const;
  // See PlanChooser::force(). All ranks must force the same. Throws if the plan cannot run.
  void force_plan(CollectiveKind kind, const Generator* generator);

  // See CompressionSettings. Collective. If ranks differ, all throw, and nothing changes.
  void set_compression(const std::string& text);
  void set_priority(host::Priority priority);       // any time, any thread
  HostTasks& host_tasks() const { return *host_; }  // also counts what compression saved
  // What it holds on the GPU. In host mode, its part of the memory that ranks share.
  size_t memory_bytes() const;
  OneSided& one_sided() { return *one_sided_; }  // with the windows
  GpuLauncher* gpu() { return gpu_.get(); }      // nullptr in host mode
  bool on_gpu() const { return gpu_ != nullptr; }
  StallExchange* stalls() const { return vigil_.stalls.get(); }  // control thread; may be nullptr
  // GPUs: launches all calls of a group on their streams.
  void launch(std::span<const Call* const> calls);

  // Host mode: begin() before the first call of a batch, add_to() for its calls (it gives up if
  // ranks disagree), hand_over() just before the batch runs: CPU nodes get their parts.
  void begin() { host_->begin(); }
  void add_to(host::Batch& batch, const Call& call);
  void add_to(host::Batch& batch, std::span<const Call* const> calls);
  void hand_over() { cpu_nodes_->hand_over(); }
  // Before it is destroyed: a message that nobody received, or calls that do not fit together, in
  // words; usually empty. `told`: the user knows of failures so far.
  std::string last_words(bool told);

  // Why operations cannot go on. The same on all ranks, unless this rank stopped by itself.
  const FaultState& faults() const { return vigil_.faults; }
  bool stopped() const { return context_.stop.load(std::memory_order_acquire) != 0; }
  void check() const;  // throws the reason if it is stopped
  // Gives up if a kernel has reported an error.
  void poll_gpu();
  // This rank ends its part, and tells the others if asked. `quits`: it has nothing to do any more,
  // which is a fault only for calls that still need it.
  void stop(ncclResult_t code, const std::string& why, bool tell, bool quits = false);
  // An operation failed here, so no rank can go on. Returns what all ranks report. `text` is empty
  // if the operation ended because of what this rank had heard.
  FaultState::Answer give_up(ncclResult_t code, const std::string& text);
  void announce(ncclResult_t code, const std::string& text);  // without a wait for other reports

  Offspring& children() { return *children_; }  // ids of communicators derived from this one

 private:
  void join(Deadline deadline);
  void compare_after_stalls(const std::vector<PeerInfo>& infos);
  void settle_rendezvous(const std::vector<PeerInfo>& infos, Deadline deadline);
  void connect(Deadline deadline);
  void use_compression(const std::string& text, bool asked, Deadline deadline);
  void use_helpers(Deadline deadline);
  void use_helpers_compressed(const CompressionSettings& settings, Deadline deadline);
  void exclude_schedules_that_do_not_fit();
  void start_gpu(Deadline deadline);
  void log_ready(double seconds) const;
  void leave();                 // delivers all sent data, then tells the other ranks goodbye
  void hear(const News& news);  // control thread
  void silence();               // after this the control thread does not call hear() any more
  void end_waits();
  bool find_gpu_error();              // true if a kernel has reported one; then all ranks are told
  void tell_gpu_wait(), guard_gpu();  // control thread: a rank has gone
  void cancel();                      // another thread ends the init
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
  std::unique_ptr<Offspring> children_;
  std::unique_ptr<OneSided> one_sided_;
};

}  // namespace weft
