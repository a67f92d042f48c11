// The plans of a communicator as programs for this rank's executor. A plan is proved and lowered
// once, when a call first takes it.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/cpu_nodes.h"
#include "src/comm/mesh.h"
#include "src/exec/one_round_shape.h"
#include "src/planner/plan_chooser.h"
#include "src/schedule/program.h"

namespace weft {

struct LoweredPlan {
  const void* source = nullptr;  // the Generator or ImportedSchedule
  uint32_t tag = 0;              // see MessageHeader::plan
  const char* traced = nullptr;  // its name in traces
  const char* means = nullptr;   // as in trace::Span; nullptr without a trace
  int root = 0;
  bool in_place = false;
  bool wide = false;  // partial sums travel as float
  Program program;
  std::optional<OneRoundShape> shape;  // set: kernels can run it without the interpreter
  std::vector<Program> cpu_programs;   // one per own CPU node, in the order of CpuNodes::own()
};

// One thread at a time.
class LoweredPlans {
 public:
  // `chooser`, `mesh` and `nodes` must outlive it.
  LoweredPlans(int rank, std::string label, const PlanChooser& chooser, const Mesh& mesh,
               const CpuNodes& nodes);

  // Kernels will run the plans. From now on a plan with CPU nodes must fit into a kernel.
  void check_for_kernels() { for_kernels_ = true; }

  // Plans say what they run on, for WEFT_TRACE.
  void describe_means() { describes_means_ = true; }

  // The choice must have Protocol::kFifos. Throws Error if the plan cannot run here. `wide`:
  // partial sums travel as float. If the plan keeps some in memory, a ring runs instead.
  const LoweredPlan& get(const Choice& choice, const Collective& collective, bool in_place,
                         bool wide = false);
  // The halves of a send/recv.
  const Program& half(bool sends) const { return sends ? send_ : receive_; }
  // An exchange of blocks of different lengths between all ranks.
  const Program& irregular(int nranks);

 private:
  const LoweredPlan* find(const void* source, const Collective& collective, bool in_place,
                          bool wide) const;
  const LoweredPlan* get_wide(std::unique_ptr<LoweredPlan>& plan, const char* name,
                              const Collective& collective, const VerifiedSchedule& verified,
                              int fifo_depth);
  const LoweredPlan& add(std::unique_ptr<LoweredPlan> plan, const char* name,
                         const Collective& collective, const VerifiedSchedule& verified,
                         int fifo_depth);
  const char* means_of(const Program& program) const;
  void check_channels(const Program& program, const char* name) const;

  const int rank_;
  const std::string label_;
  const PlanChooser& chooser_;
  const Mesh& mesh_;
  const CpuNodes& nodes_;
  bool for_kernels_ = false, describes_means_ = false;
  std::array<std::vector<std::unique_ptr<LoweredPlan>>, kCollectiveKinds> plans_;
  Program send_, receive_;
  std::optional<Program> irregular_;
};

}  // namespace weft
