// Host mode: turns calls into tasks of the host executor.
#pragma once

#include <array>
#include <vector>

#include "src/base/handles.h"
#include "src/comm/call.h"
#include "src/comm/lowered_plans.h"
#include "src/comm/operation_builder.h"
#include "src/exec/host/batch.h"

namespace weft {

// For the thread that makes calls.
class HostTasks {
 public:
  // All must outlive it.
  HostTasks(const Config& config, int nranks, host::RankContext& context, Mesh& mesh,
            PlanChooser& chooser, LoweredPlans& plans, CpuNodes& nodes,
            const OperationBuilder& operations);

  // Before the first call of a batch.
  void begin();
  // Appends a call's task; a call with nothing to move adds none.
  void add(host::Batch& batch, const Call& call);

 private:
  bool pays_to_lend(const Call& call, const Program& program, const Operation& op) const;
  void lend(const Call& call, const Program& program, Operation& op) const;
  void connect_ports(const Call& call, const Program& program, host::Task& task);
  std::byte* scratch(size_t bytes);

  const Config& config_;
  const int nranks_;
  host::RankContext& context_;
  Mesh& mesh_;
  PlanChooser& chooser_;
  LoweredPlans& plans_;
  CpuNodes& nodes_;
  const OperationBuilder& operations_;
  // NCCL_PROTO leaves out Simple: data is copied through the FIFOs, never lent.
  std::array<bool, kCollectiveKinds> copies_only_{};
  std::vector<Mapping> scratch_;
  uint64_t sequence_ = 0;
  // The latest tasks of the batch being built, which the next one of the same kind (and peer) must
  // follow.
  const host::Task* last_collective_ = nullptr;
  std::vector<const host::Task*> last_send_, last_receive_;
  bool point_to_point_ = false;
};

// Hands the parts of a call that CPU nodes of this rank run to them.
void add_cpu_parts(const Call& call, const LoweredPlan& plan, uint64_t sequence,
                   const OperationBuilder& operations, CpuNodes& nodes);

}  // namespace weft
