// The GPU side of a rank: connects its executor to the peers' and launches calls on streams. Where
// GPUs have no peer access, or a plan has CPU nodes, data goes through FIFOs in pinned host memory
// ("rings" here) that kernels fill and empty.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/control_channel.h"
#include "src/comm/lowered_plans.h"
#include "src/comm/operation_builder.h"
#include "src/comm/stall_watch.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/host/batch.h"

namespace weft {

// What it uses of its communicator. All must outlive it.
struct GpuLauncherParts {
  const Config& config;
  host::RankContext& context;
  ControlChannel& control;
  Mesh& mesh;
  PlanChooser& chooser;
  LoweredPlans& plans;
  CpuNodes& nodes;
  const OperationBuilder& operations;
};

// Calls come from one thread at a time; stop(), peer_left() and error() from any.
class GpuLauncher {
 public:
  GpuLauncher(const cuda::GpuOptions& options, const GpuLauncherParts& parts);

  // Collective: how ranks reach each other is decided for all of them. Tells the chooser.
  void connect(Deadline deadline);
  // Waits for kernels that use FIFOs in host memory. After the others were told goodbye.
  void disconnect();

  // All calls of a group at once.
  void launch(std::span<const Call* const> calls);
  void synchronize() { gpu_.synchronize(); }
  void register_memory(const void* pointer, size_t size) { gpu_.register_memory(pointer, size); }
  void deregister_memory(const void* pointer) { gpu_.deregister_memory(pointer); }

  int device() const { return gpu_.device(); }
  bool via_host() const { return rings_; }
  void stop() noexcept { gpu_.stop(); }
  void peer_left(int peer) noexcept { gpu_.peer_left(peer); }
  std::string error() const { return gpu_.error(); }

 private:
  struct GpuEntry {
    const Generator* generator = nullptr;
    int root = 0;
    std::shared_ptr<cuda::GpuPlan> plan;
  };
  const GpuEntry& gpu_plan(const Collective& collective, const Choice& choice);
  bool is_one_round(const Generator& generator, const Collective& collective);
  bool connect_peers(Deadline deadline);
  void launch_collective(const Call& call);
  void launch_send_recvs(std::span<const Call* const> calls);
  // GPUs whose memory cannot be reached: FIFOs in host memory, drained by the proxy or by a GPU.
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
  cuda::GpuExecutor gpu_;
  std::unique_ptr<StallWatch> stalls_;
  std::array<std::vector<std::unique_ptr<GpuEntry>>, kCollectiveKinds> gpu_plans_;
  bool rings_ = false;            // between GPUs, for all calls
  bool rings_connected_ = false;  // for some calls at least: those whose plans have CPU nodes
  bool captured_ = false;         // the launch under way becomes part of a graph
  int ring_channels_ = 0;         // of the rings' ports
  Program send_recv_program_;     // lane 0 sends, lane 1 receives
  std::vector<Proxy*> proxies_;   // told to look after the rings by themselves
};

}  // namespace weft
