// A communicator: one rank's membership in a group of ranks. Turns calls into tasks for the
// executor.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/control_channel.h"
#include "src/comm/cpu_node.h"
#include "src/comm/mesh.h"
#include "src/comm/stall_watch.h"
#include "src/comm/unique_id.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/host/batch.h"
#include "src/planner/imported_schedules.h"
#include "src/planner/init_plans.h"
#include "src/planner/selection.h"
#include "src/schedule/program.h"

namespace weft {

// Calls that move data come from one thread at a time (NCCL's rule); stop() and the queries from
// any thread.
class Communicator {
 public:
  // Joins the rendezvous of `id` and connects to all peers. Blocking; throws Error.
  // `device`, `max_ctas` and `copy_engines` matter where there are GPUs. `schedules` replaces those
  // that the environment names.
  Communicator(const UniqueId& id, int rank, int nranks, const std::string& label, int device,
               int max_ctas, bool copy_engines, const std::string& net_name,
               std::shared_ptr<const ImportedSchedules> schedules = nullptr);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int nranks() const { return nranks_; }
  host::RankContext& context() { return context_; }
  const Mesh& mesh() const { return *mesh_; }

  // Memory that other processes may use where it is. Without effect in host mode.
  void register_memory(const void* pointer, size_t size);
  void deregister_memory(const void* pointer);

  // On GPUs calls are launched on their streams, all of a group at once; the host's batches are not
  // used.
  bool on_gpu() const { return gpu_ != nullptr; }
  void launch(std::span<const Call* const> calls);

  // Call begin() before the first call of a batch. add_to() appends a call's task; a call with
  // nothing to move adds none.
  void begin();
  void add_to(host::Batch& batch, const Call& call);
  // Just before the batch runs: CPU nodes of this rank get their parts of its calls.
  void hand_over();
  // The imported schedule that such a call runs as, nullptr if it takes a built-in plan.
  const ImportedSchedule* imported_for(const ImportedCall& call);

  // For tools that compare plans: from the next call on, on all ranks alike, such calls run as this
  // generator says; nullptr: as agreed. Throws where they could not.
  void force_plan(CollectiveKind kind, const Generator* generator);

  // What all ranks have agreed on, and what a call should take by that; 0: unknown.
  const CommunicatorPlans& plans() const { return agreed_; }
  double estimate_us(const Call& call) const;
  // Lives as long as the communicator.
  const char* plan_name(CollectiveKind kind, size_t bytes) const;

  // Why operations cannot go on; empty while they can. Sticky.
  std::string fault() const;
  ncclResult_t fault_code() const;
  // Takes note of what kernels found wrong meanwhile.
  void poll_gpu();
  // Waits for what was launched on this rank's GPU; nothing to wait for in host mode.
  void synchronize();
  // Ends every wait with this text, now and later, and tells the other ranks if `tell` is set.
  void stop(ncclResult_t code, const std::string& why, bool tell);

  // Leaves in good order: what was sent is delivered, the others are told goodbye.
  void leave();

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
  struct Plan {
    const void* source = nullptr;  // the Generator or ImportedSchedule
    uint32_t tag = 0;              // see MessageHeader::plan
    int root = 0;
    bool in_place = false;
    Program program;
    std::optional<OneRoundShape> shape;  // set: it needs no interpreter
    std::vector<Program> cpu_programs;   // of the CPU nodes that this rank has, in their order
  };
  const Plan& plan_for(const Collective& collective, const Generator& generator, bool in_place);
  const Plan& plan_for(const ImportedSchedule& schedule, const Collective& collective,
                       bool in_place);
  const Plan* find_plan(const void* source, const Collective& collective, bool in_place) const;
  const Plan& add_plan(std::unique_ptr<Plan> plan, const void* source, std::string_view label,
                       const Collective& collective, const VerifiedSchedule& verified,
                       int fifo_depth);
  const Plan& choose_plan(const Call& call);
  // Between GPUs of several hosts choose_generator() decides, until such machines have been
  // measured, and where it was found out too late that GPUs do not reach each other.
  bool goes_by_rules() const;
  // Whether GPUs of several hosts run collectives in several instances; equal on all ranks.
  static bool multi_connection_if_hosts(const Config& config, int nranks);
  int channels_for_plans(const std::vector<PeerInfo>& infos) const;
  // What NCCL_PROTO and NCCL_MAX_NCHANNELS mean here, and what GPUs need.
  static Config tuned(Config config, int nranks);
  void agree_on_plans(const std::vector<PeerInfo>& infos, Deadline deadline);
  void load_schedules(std::shared_ptr<const ImportedSchedules> given);
  void check_schedules_fit();
  // CPU nodes: why there are none, how many plans need, and which rank has which.
  std::string no_cpu_nodes(const std::vector<PeerInfo>& infos) const;
  // Why data of GPUs must go through host memory, as settings say; empty: it need not.
  static std::string must_go_via_host(const std::vector<PeerInfo>& infos);
  std::string lacks_cpu_nodes(const ImportedSchedule& schedule) const;  // "": it does not
  int cpu_nodes_for(const std::vector<PeerInfo>& infos);
  int cpu_node_rank(int node) const;
  std::vector<std::unique_ptr<CpuNode>> open_cpu_nodes(const MeshPlan& plan);
  // The generator; nullptr where it has CPU nodes and the call is captured, which is told once.
  const Generator* without_captured_cpus(const Generator* generator);
  const Generator* generator_of(const PlanOption* option) const;
  // Whether GPUs that reach each other leave this call to CPU nodes.
  bool asks_cpus(const Generator* forced, const Collective& collective, size_t bytes);
  void add_cpu_parts(const Call& call, const Plan& plan, uint64_t sequence);
  void stop_cpu_nodes() noexcept;
  struct GpuEntry {
    const Generator* generator = nullptr;
    int root = 0;
    std::shared_ptr<cuda::GpuPlan> plan;
  };
  const GpuEntry& gpu_plan(const Collective& collective, const GpuChoice& choice);
  bool is_one_round(const Generator& generator, const Collective& collective);
  void connect_gpu(Deadline deadline);
  bool reach_gpus(Deadline deadline);
  // GPUs whose memory cannot be reached: FIFOs in host memory, drained by the proxy or by a GPU.
  void connect_rings();
  void disconnect_rings();
  void launch_rings(std::span<const Call* const> calls);
  void launch_ring_send_recvs(std::span<const Call* const> calls);
  size_t port_number(int peer, int channel) const;
  void tell_observer(const Call& call, const Program& program, const Operation& launched);
  static Program merge_lanes(const Program& first, const Program& second);
  Operation operation_for(const Call& call, const Program& program, uint32_t tag) const;
  bool pays_to_lend(const Call& call, const Program& program, const Operation& op) const;
  void launch_send_recvs(std::span<const Call* const> calls);
  void slice_operation(Operation& operation, const Program& program) const;
  std::byte* scratch(size_t bytes);
  Child make_child(const Secret& secret, const std::vector<int>& members) const;
  void on_news(int rank, bool failed, const std::string& why);

  const Secret secret_;
  const int rank_, nranks_;
  const Config config_;
  host::RankContext context_;
  std::vector<std::atomic<bool>> gone_;
  mutable std::mutex fault_mutex_;
  std::string fault_;
  ncclResult_t fault_code_ = ncclSuccess;
  std::unique_ptr<ControlChannel> control_;
  std::unique_ptr<Mesh> mesh_;
  int cpu_nodes_ = 0;  // that all ranks know of
  std::string why_no_cpu_nodes_;
  std::unique_ptr<cuda::GpuExecutor> gpu_;
  std::unique_ptr<StallWatch> stalls_;  // of its GPU
  Placement placement_;
  std::array<const Generator*, kCollectiveKinds> forced_{};
  std::shared_ptr<const ImportedSchedules> imported_;
  CommunicatorPlans agreed_;
  std::vector<const Generator*> option_generators_;  // per option of the table
  // All that connections must carry: what was imported, then what was synthesized.
  std::shared_ptr<const ImportedSchedules> connected_;
  static constexpr uint8_t kNeverFits = 0xff;
  std::vector<uint8_t> logged_;  // per imported schedule, a bit per rule that has been logged
  std::array<std::vector<std::unique_ptr<Plan>>, kCollectiveKinds> plans_;
  std::array<std::vector<std::unique_ptr<GpuEntry>>, kCollectiveKinds> gpu_plans_;
  Program send_program_, receive_program_;
  // NCCL_PROTO leaves out Simple: data is copied through the FIFOs, never lent.
  std::array<bool, kCollectiveKinds> copies_only_{};
  bool rings_ = false;            // between GPUs, for all calls
  bool rings_connected_ = false;  // for some calls at least: those whose plans have CPU nodes
  bool captured_ = false;         // the launch under way becomes part of a graph
  bool logged_captured_ = false;
  int ring_channels_ = 0;        // of the rings' ports
  Program send_recv_program_;    // lane 0 sends, lane 1 receives
  std::vector<Proxy*> proxies_;  // told to look after the rings by themselves
  std::vector<Mapping> scratch_;
  uint64_t sequence_ = 0;
  std::map<uint64_t, uint64_t> shrinks_;  // how often each set of ranks has been left out
  std::atomic<bool> ready_{false};        // mesh_ is complete
  // The latest tasks of the batch being built, which the next one of the same kind (and peer) must
  // follow.
  const host::Task* last_collective_ = nullptr;
  std::vector<const host::Task*> last_send_, last_receive_;
  bool point_to_point_ = false;
  // Of this rank, and what each has to do in the batch being built. They use plans and the mesh.
  std::vector<std::unique_ptr<CpuNode>> own_nodes_;
  std::vector<std::vector<CpuNode::Job>> node_jobs_;
};

}  // namespace weft
