// Which plan a call takes. choose() is the one place where that is decided: launches, estimates,
// `weft explain` and weftPlanOf() all ask it, so what they say is what runs.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/planner/imported_schedules.h"
#include "src/planner/init_plans.h"
#include "src/planner/selection.h"

namespace weft {

// How a plan runs.
enum class Protocol : uint8_t {
  kFifos,        // the interpreter; messages go through FIFOs in host memory
  kPackets,      // GPUs: small messages with flags beside the data
  kLoadStore,    // GPUs: loads and stores in peers' memory
  kCopyEngines,  // GPUs: copy engines move the data
};

struct Choice {
  const Generator* generator = nullptr;
  const ImportedSchedule* schedule = nullptr;  // imported or synthesized; then no generator
  Protocol protocol = Protocol::kFifos;
  const char* name = "";  // lives as long as the chooser
};

// Set up by one thread at init. Then choose() may be called by any thread; force() by the thread
// that makes calls.
class PlanChooser {
 public:
  // Whether copy engines move messages of this size in operations of this kind.
  using CopyTest = std::function<bool(CollectiveKind kind, size_t message_bytes)>;

  // Throws Error on a bad WEFT_PLAN. `imported` may be empty, not nullptr.
  PlanChooser(const Config& config, int rank, int nranks, std::string label,
              std::shared_ptr<const ImportedSchedules> imported);

  // First, what all ranks have agreed on; then how many CPU nodes there are; then, when peers are
  // connected, how they reach each other.
  void agree(CommunicatorPlans plans);
  void set_cpu_nodes(int count) { cpu_nodes_ = count; }
  void place(const Placement& placement, CopyTest copies = {});
  // An imported schedule that can never run here. `why` is logged by rank 0.
  void exclude(const ImportedSchedule& schedule, const std::string& why);

  // What connections must offer for the plans that may be chosen: channels between two ranks, at
  // least `usual`, and CPU nodes. Beside GPUs only nodes that some size uses count: their FIFOs are
  // pinned.
  int channels(int usual) const;
  int most_cpu_nodes(bool on_gpus) const;

  // Throws Error(ncclInvalidUsage) where WEFT_PLAN asks for what cannot run.
  Choice choose(const PlanCall& call) const;
  // Where the table has it; nullptr: it does not know that plan.
  const PlanOption* option_of(const Choice& choice, CollectiveKind kind) const;
  // Microseconds; 0: unknown.
  double estimate_us(const PlanCall& call) const;

  // From the next call on, such calls run as this generator says; nullptr: as agreed.
  void force(CollectiveKind kind, const Generator* generator);

  const CommunicatorPlans& agreed() const { return agreed_; }
  const Placement& placement() const { return placement_; }
  const ImportedSchedules& imported() const { return *imported_; }
  // Imported, then synthesized schedules: what connections must carry.
  const ImportedSchedules& connected() const { return *connected_; }

 private:
  static constexpr uint8_t kNeverFits = 0xff;

  const Generator* generator_of(const PlanOption* option) const;
  // The generator; nullptr where it has CPU nodes and the call is captured, which is logged once.
  const Generator* unless_captured(const Generator* generator, const PlanCall& call) const;
  // Simple rules decide instead of the table: between GPUs of several hosts, and where init found
  // out too late that GPUs have no peer access.
  bool goes_by_rules() const;
  bool uses_cpu_nodes(const Generator* forced, const PlanCall& call) const;
  const ImportedSchedule* imported_for(const PlanCall& call) const;
  Choice on_gpus(const PlanCall& call, const Generator* forced) const;
  Choice through_fifos(const PlanCall& call, const Generator* forced) const;

  const int rank_, nranks_;
  const std::string label_;
  const size_t packet_bytes_;
  const bool emulates_topo_;  // WEFT_TOPO
  std::array<const Generator*, kCollectiveKinds> forced_{};
  const std::shared_ptr<const ImportedSchedules> imported_;
  // Per imported schedule a bit per rule that excluded it and was logged.
  mutable std::vector<std::atomic<uint8_t>> logged_;
  mutable std::atomic<bool> logged_captured_{false};
  CommunicatorPlans agreed_;
  std::vector<const Generator*> option_generators_;  // per option of the table
  std::shared_ptr<const ImportedSchedules> connected_;
  int cpu_nodes_ = 0;
  Placement placement_;
  CopyTest copies_;
};

}  // namespace weft
