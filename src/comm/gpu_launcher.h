// The GPU side of a rank. It connects the rank's executor to those of its peers and launches calls
// on streams. Without peer access, or if a plan has CPU nodes, data goes through FIFOs in pinned
// host memory. Names here call them rings. Kernels fill and empty them.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/compression_count.h"
#include "src/comm/control_channel.h"
#include "src/comm/losses.h"
#include "src/comm/lowered_plans.h"
#include "src/comm/operation_builder.h"
#include "src/comm/stall_watch.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/host/batch.h"

namespace weft {

// Parts of the communicator that the launcher uses. All must outlive it.
struct GpuLauncherParts {
  const Config& config;
  host::RankContext& context;
  ControlChannel& control;
  Mesh& mesh;
  PlanChooser& chooser;
  LoweredPlans& plans;
  CpuNodes& nodes;
  const OperationBuilder& operations;
  CompressionCount& compression;
};

// For one thread at a time. Any thread may call stop(), peer_left() and error().
class GpuLauncher {
 public:
  GpuLauncher(const cuda::GpuOptions& options, const GpuLauncherParts& parts);
  ~GpuLauncher() { stop_polling(); }
  GpuLauncher(const GpuLauncher&) = delete;
  GpuLauncher& operator=(const GpuLauncher&) = delete;

  // Collective. All ranks decide on one data path, which the chooser learns.
  void connect(Deadline deadline);
  // Waits for kernels that use FIFOs in host memory. Call it after the goodbye to the other ranks.
  void disconnect();

  // Launches all calls of a group.
  void launch(std::span<const Call* const> calls);
  void set_priority(host::Priority priority) { gpu_.set_priority(static_cast<int>(priority)); }
  void synchronize() { gpu_.synchronize(); }
  cuda::OwnBuffer own_buffer(size_t bytes) { return gpu_.own_buffer(bytes); }
  void register_memory(const void* pointer, size_t size);
  void deregister_memory(const void* pointer);
  using Registered = std::vector<std::pair<const void*, size_t>>;
  const Registered& registered() const { return registered_; }
  bool busy() const { return gpu_.busy(); }
  // Device memory of this rank.
  size_t device_bytes() const { return gpu_.device_bytes() + losses_.bytes(); }
  // Graphs that hold its calls and still exist.
  int graphs() const { return gpu_.graphs(); }

  // The setting of compression has changed.
  void forget_losses() { losses_.forget(); }

  // For windows and one-sided calls. lsa(): all ranks of every host reach each other's memory.
  bool lsa() const { return lsa_; }
  bool reaches(int peer) const { return !rings_ && gpu_.reaches(peer); }
  cuda::SignalWords signal_words() const;

  int device() const { return gpu_.device(); }
  bool via_host() const { return rings_; }
  void stop() noexcept { gpu_.stop(); }
  void peer_left(int peer) noexcept { gpu_.peer_left(peer); }
  // Why kernels gave up, with the call and the step if they are known; "": they did not.
  std::string error() const;
  cuda::LongWait long_wait();  // control thread; the rank's activity has it, too

 private:
  struct GpuEntry {
    const Generator* generator = nullptr;
    int root = 0;
    std::shared_ptr<cuda::GpuPlan> plan;  // nullptr: it runs on lanes
    const char* means = nullptr;          // see Ran
  };
  struct LaneEntry {
    const void* source = nullptr;  // the Generator or ImportedSchedule
    int root = 0;
    bool in_place = false;
    bool wide = false;  // partial sums travel as float
    std::shared_ptr<cuda::LanePlan> plan;
    const char* name = nullptr;
    const char* means = nullptr;  // see Ran
  };
  // The plan of the last call, for WEFT_TRACE: its name and trace::Span::means.
  struct Ran {
    const char* plan = nullptr;
    const char* means = nullptr;
  };
  const GpuEntry& gpu_plan(const Collective& collective, const Choice& choice);
  // The activity learns of the calls, or that their launch failed.
  void launch_all(std::span<const Call* const> calls, uint64_t number);
  void note_calls(std::span<const Call* const> calls);
  bool connect_peers(Deadline deadline);
  void settle(const std::vector<std::string>& reach);
  cuda::GpuPosts posts();
  void poll(Proxy& proxy);
  void stop_polling() noexcept;
  void share_blocks(const std::vector<cuda::GpuPeer>& peers, Deadline deadline);
  // Only with WEFT_TRACE.
  bool traced() const { return context_.track.id() >= 0; }
  int64_t begin_record();
  void record(std::span<const Call* const> calls, int64_t begin, uint64_t number);
  const char* means_of(PlanPath path, const Program& program) const;
  template <typename Launch>
  void timed(std::span<const Call* const> calls, Launch launch);
  void launch_collective(const Call& call);
  void launch_exchange(const Call& exchange);
  void launch_lanes(const Call& call, const Collective& collective, const Choice& choice,
                    cuda::GpuCall gpu_call, bool in_place, bool wide);
  const LaneEntry& lane_plan(const Collective& collective, const Choice& choice, bool in_place,
                             bool wide);
  bool passes_sums_on(const Collective& collective, const Choice& choice);
  void compress(const Call& call, const Collective& collective, const Choice& choice, bool in_place,
                cuda::GpuCall& gpu_call);
  void launch_send_recvs(std::span<const Call* const> calls);
  using Rounds = std::vector<std::vector<cuda::GpuMessage>>;
  void launch_messages(const Rounds& sends, const Rounds& receives);
  // FIFOs in host memory, for GPUs without access to each other's memory. The proxy or the peer's
  // GPU empties them.
  void connect_rings();
  void launch_ring_collective(const Call& call, const Collective& collective, const Choice& choice,
                              bool in_place);
  void launch_ring_send_recvs(std::span<const Call* const> calls);
  size_t port_number(int peer, int channel) const;
  void tell_observer(const Call& call, const Program& program, const Operation& launched);
  static Program merge_lanes(const Program& first, const Program& second);

  const int rank_, nranks_;
  const Config& config_;
  host::RankContext& context_;
  ControlChannel& control_;
  Mesh& mesh_;
  PlanChooser& chooser_;
  LoweredPlans& plans_;
  CpuNodes& nodes_;
  const OperationBuilder& operations_;
  CompressionCount& compression_;
  cuda::GpuExecutor gpu_;
  Losses losses_;
  std::unique_ptr<StallWatch> stalls_;
  std::array<std::vector<std::unique_ptr<GpuEntry>>, kCollectiveKinds> gpu_plans_;
  std::array<std::vector<LaneEntry>, kCollectiveKinds> lane_plans_;
  std::array<std::vector<std::pair<const Generator*, bool>>, kCollectiveKinds> pass_sums_on_;
  bool warned_of_sums_ = false;
  std::atomic<uint64_t> noted_{0};  // collectives so far; error() reads it on any thread
  bool rings_ = false;              // all calls use rings
  bool lsa_ = false;                // see lsa()
  bool rings_connected_ = false;  // rings exist; calls whose plans have CPU nodes use them at least
  Ran ran_;
  bool captured_ = false;        // the current launch becomes part of a graph
  int ring_channels_ = 0;        // ports per peer
  Program send_recv_program_;    // lane 0 sends, lane 1 receives
  std::vector<Proxy*> proxies_;  // they keep polling
  Registered registered_;
};

}  // namespace weft
