// Chooses the plan of a call. Only choose() decides. Launches, estimates, `weft explain` and
// weftPlanOf() all call it, so the plan they name is the plan that runs.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/planner/compression.h"
#include "src/planner/imported_schedules.h"
#include "src/planner/init_plans.h"
#include "src/planner/selection.h"

namespace weft {

struct Choice {
  const Generator* generator = nullptr;
  const ImportedSchedule* schedule = nullptr;  // imported or synthesized; then generator is nullptr
  PlanPath path = PlanPath::kFifos;
  const char* name = "";                         // lives as long as the chooser
  const CompressionRule* compression = nullptr;  // of a compressed plan
  bool helped = false;                           // hosts that help take part
};

// One thread sets it up at init. Then any thread may call choose(). Only the thread that makes
// calls may call force(), while no other thread chooses.
class PlanChooser {
 public:
  // Whether copy engines move messages of this size in operations of this kind.
  using CopyTest = std::function<bool(CollectiveKind kind, size_t message_bytes)>;

  // Throws Error on a bad WEFT_PLAN. `imported` may be empty, not nullptr.
  PlanChooser(const Config& config, int rank, std::string label,
              std::shared_ptr<const ImportedSchedules> imported);

  // Set-up, in this order: the agreed plans, the number of CPU nodes, and, when peers are
  // connected, how they reach each other.
  void agree(CommunicatorPlans plans);
  void set_cpu_nodes(int count) {
    cpu_nodes_ = count;
    changed();
  }
  void place(const Placement& placement, CopyTest copies = {});
  // Excludes an imported schedule that can never run here. Rank 0 logs `why`.
  void exclude(const ImportedSchedule& schedule, const std::string& why);

  // From the next call on, calls go by these plans where they fit. nullptr: none does. Earlier
  // plans stay, because calls may have their names.
  void compress(std::shared_ptr<const CompressedPlans> plans);
  const CompressedPlans* compressed() const { return compressed_.load(std::memory_order_acquire); }

  // From the next call on, all_reduces of so many bytes go by this plan of ranks and helpers, where
  // nothing else is asked for. nullptr: none does.
  void help(const ImportedSchedule* plan, size_t from_bytes) {
    helped_ = {plan, from_bytes};
    changed();
  }
  // The same for all_reduces that are compressed.
  void help_compressed(const ImportedSchedule* plan, size_t from_bytes) {
    helped_compressed_ = {plan, from_bytes};
    changed();
  }

  // The channels between two ranks that plans may need: at least `usual`.
  int channels(int usual) const;
  // The CPU nodes that plans may need. With GPUs, table options that no size chooses do not count,
  // because the FIFOs of a node are pinned memory.
  int most_cpu_nodes(bool on_gpus) const;

  // Throws Error(ncclInvalidUsage) if the forced plan cannot run.
  Choice choose(const PlanCall& call) const;
  // Grows from 1 when calls may be chosen otherwise than before.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  // The choice's option in the table; nullptr: the table lacks it.
  const PlanOption* option_of(const Choice& choice, CollectiveKind kind) const;
  // Microseconds; 0: unknown.
  double estimate_us(const PlanCall& call) const;

  // From the next call on, calls of this kind take the generator's plan; nullptr: the agreed plan.
  void force(CollectiveKind kind, const Generator* generator);

  // Whether simple rules decide instead of the table: between GPUs of several hosts, and where init
  // found out too late that GPUs have no peer access.
  bool goes_by_rules() const;
  const CommunicatorPlans& agreed() const { return agreed_; }
  const Placement& placement() const { return placement_; }
  const ImportedSchedules& imported() const { return *imported_; }
  // Imported, then synthesized schedules. Connections must be able to carry all of them.
  const ImportedSchedules& connected() const { return *connected_; }

 private:
  static constexpr uint16_t kNeverFits = 0xffff;

  void changed() { changes_.fetch_add(1, std::memory_order_release); }

  const Generator* generator_of(const PlanOption* option) const;
  // The generator, or nullptr if it has CPU nodes and the call is captured. Logs that once.
  const Generator* unless_captured(const Generator* generator, const PlanCall& call) const;
  bool uses_cpu_nodes(const Generator* forced, const PlanCall& call) const;
  CompressedPlans::Found imported_for(const PlanCall& call) const;
  Choice on_gpus(const PlanCall& call, const Generator* forced) const;
  bool sends_messages(const PlanCall& call, const Generator* forced) const;
  // The table's choice for the call; nullptr: rules decide. `kernels`: not only messages.
  const PlanOption* tabled(const PlanCall& call, bool kernels) const;
  // Where measured times say otherwise than rules.
  const PlanOption* overruled(const PlanCall& call) const;
  // A plan whose ranks send messages.
  Choice by_messages(const PlanCall& call, const Generator* forced, PlanPath path) const;

  const int rank_;
  const std::string label_;
  const size_t packet_bytes_;
  const bool emulates_topo_;  // WEFT_TOPO
  std::array<const Generator*, kCollectiveKinds> forced_{};
  const std::shared_ptr<const ImportedSchedules> imported_;
  // Per imported schedule: a bit for each rule that excluded it and is logged, or kNeverFits.
  mutable std::vector<std::atomic<uint16_t>> logged_;
  mutable std::atomic<bool> logged_captured_{false};
  CommunicatorPlans agreed_;
  std::vector<const Generator*> option_generators_;  // per option of the table
  std::shared_ptr<const ImportedSchedules> connected_;
  bool has_lanes_ = false;  // the agreed table has plans that run as lanes
  int cpu_nodes_ = 0;
  Placement placement_;
  CopyTest copies_;
  std::vector<std::shared_ptr<const CompressedPlans>> all_compressed_;
  std::atomic<const CompressedPlans*> compressed_{nullptr};
  struct Helped {
    const ImportedSchedule* plan = nullptr;
    size_t from = 0;  // bytes
    bool fits(const PlanCall& call) const;
  };
  Helped helped_, helped_compressed_;
  std::atomic<uint64_t> changes_{1};
};

}  // namespace weft
