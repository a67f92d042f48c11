// See lowered_plans.h.
#include "src/comm/lowered_plans.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/trace.h"
#include "src/comm/traced_plan.h"
#include "src/comm/wide_schedule.h"
#include "src/exec/cuda/host_fifo_fit.h"
#include "src/planner/proved_schedules.h"
#include "src/schedule/lower.h"

namespace weft {
namespace {

constexpr uint32_t kWideTag = 0x77696465;  // see MessageHeader::plan

}  // namespace

LoweredPlans::LoweredPlans(int rank, std::string label, const PlanChooser& chooser,
                           const Mesh& mesh, const CpuNodes& nodes)
    : rank_(rank), label_(std::move(label)), chooser_(chooser), mesh_(mesh), nodes_(nodes) {
  const auto send_recv =
      ProvedSchedules::instance().get(kSendRecv, {CollectiveKind::kSendRecv, 2, 0}, false);
  send_ = lower(*send_recv, 0);
  receive_ = lower(*send_recv, 1);
}

const Program& LoweredPlans::irregular(int nranks) {
  if (!irregular_)
    irregular_ = lower(*ProvedSchedules::instance().get(
                           kIrregular, {CollectiveKind::kAllToAllV, nranks, 0}, false),
                       rank_);
  return *irregular_;
}

const LoweredPlan* LoweredPlans::find(const void* source, const Collective& collective,
                                      bool in_place, bool wide) const {
  for (const auto& plan : plans_[static_cast<size_t>(collective.kind)])
    if (plan->source == source && plan->root == collective.root && plan->in_place == in_place &&
        plan->wide == wide)
      return plan.get();
  return nullptr;
}

const LoweredPlan& LoweredPlans::get(const Choice& choice, const Collective& collective,
                                     bool in_place, bool wide) {
  const void* source = choice.schedule != nullptr ? static_cast<const void*>(choice.schedule)
                                                  : static_cast<const void*>(choice.generator);
  if (const LoweredPlan* plan = find(source, collective, in_place, wide)) return *plan;
  auto plan = std::make_unique<LoweredPlan>();
  plan->source = source;
  plan->wide = wide;
  if (const ImportedSchedule* schedule = choice.schedule) {
    plan->tag = static_cast<uint32_t>(schedule->hash) | 1u;
    if (wide)
      if (const LoweredPlan* made = get_wide(
              plan, schedule->path.c_str(), collective,
              *(in_place ? schedule->in_place : schedule->out_of_place), schedule->fifo_depth))
        return *made;
    return add(std::move(plan), schedule->path.c_str(), collective,
               *(in_place ? schedule->in_place : schedule->out_of_place), schedule->fifo_depth);
  }
  const auto verified = ProvedSchedules::instance().get(*choice.generator, collective, in_place,
                                                        chooser_.placement().hosts);
  if (wide)
    if (const LoweredPlan* made =
            get_wide(plan, choice.name, collective, *verified, verified->fifo_depth()))
      return *made;
  return add(std::move(plan), choice.name, collective, *verified, verified->fifo_depth());
}

// nullptr: the plan has no partial sums, and `plan` is unused.
const LoweredPlan* LoweredPlans::get_wide(std::unique_ptr<LoweredPlan>& plan, const char* name,
                                          const Collective& collective,
                                          const VerifiedSchedule& verified, int fifo_depth) {
  const WideSchedule wide = wide_schedule(verified, collective, fifo_depth);
  if (wide.schedule == nullptr) return nullptr;
  plan->tag ^= kWideTag;
  const LoweredPlan& made = add(std::move(plan), wide.ring ? kRing.name.data() : name, collective,
                                *wide.schedule, fifo_depth);
  // Sums in float do not overflow, so averages need no scaled inputs.
  LoweredPlan& own = *plans_[static_cast<size_t>(collective.kind)].back();
  own.program.partial_sums = false;
  for (Program& program : own.cpu_programs) program.partial_sums = false;
  return &made;
}

const LoweredPlan& LoweredPlans::add(std::unique_ptr<LoweredPlan> plan, const char* name,
                                     const Collective& collective, const VerifiedSchedule& verified,
                                     int fifo_depth) {
  const Schedule& schedule = verified.schedule();
  plan->traced = trace::keep(name);
  plan->root = collective.root;
  plan->in_place = verified.in_place();
  plan->program = lower(verified, rank_);
  plan->program.fifo_depth = fifo_depth;
  if (schedule.cpu_nodes == 0) plan->shape = one_round_shape(plan->program);
  if (const std::string why = nodes_.lacks(schedule.cpu_nodes); !why.empty())
    fail(ncclInvalidUsage, "schedule {}: {}", name, why);
  for (const auto& node : nodes_.own())
    if (node->number() < collective.nranks + schedule.cpu_nodes) {
      plan->cpu_programs.push_back(lower(verified, node->number()));
      plan->cpu_programs.back().fifo_depth = fifo_depth;
    }
  // The check comes before CPU nodes get a job of this plan.
  if (for_kernels_ && (schedule.cpu_nodes > 0 || plan->program.scratch_chunks > 0))
    if (const std::string why = unfit_for_host_fifos(schedule); !why.empty())
      fail(ncclInvalidUsage, "schedule {}: {}", name, why);
  check_channels(plan->program, name);
  if (describes_means_) plan->means = means_of(plan->program);
  WEFT_INFO(kTuning, "{}: {} root {} {} runs as {}: {} lanes, {} steps here", label_,
            weft::name(collective.kind), collective.root,
            plan->in_place ? "in place" : "out of place", name, plan->program.lanes.size(),
            plan->program.steps.size());
  auto& plans = plans_[static_cast<size_t>(collective.kind)];
  plans.push_back(std::move(plan));
  return *plans.back();
}

const char* LoweredPlans::means_of(const Program& program) const {
  return traced_means(name_of(PlanPath::kFifos), program, [&](int peer, int channel, bool sends) {
    if (mesh_.link_kind(peer) != LinkKind::kNetwork) return TracedPort{};
    return TracedPort{TracedPort::Kind::kNetwork,
                      nic_of(mesh_.network_links(), peer, collective_channel(channel), sends)};
  });
}

void LoweredPlans::check_channels(const Program& program, const char* name) const {
  const int channels = std::max(mesh_.plan_channels(), chooser_.connected().most_channels());
  for (const auto* ports : {&program.sends, &program.receives})
    for (const ProgramPort& port : *ports)
      if (port.channel < 0 || port.channel >= channels)
        fail(ncclInvalidUsage, "schedule {} uses channel {}, there are {}", name, port.channel,
             channels);
}

}  // namespace weft
