// The part of a communicator that chooses among imported schedules.
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/communicator.h"

namespace weft {

// Before the mesh, which needs to know how many channels they use.
void Communicator::load_schedules(std::shared_ptr<const ImportedSchedules> given) {
  const bool named = !config_.schedules.empty() || !config_.msccl_xml_files.empty() ||
                     !config_.msccl_algo_dir.empty();
  if (given == nullptr && named && cuda::available()) {
    if (rank_ == 0)
      WEFT_WARN(
          "WEFT_SCHEDULES, MSCCL_XML_FILES and MSCCL_ALGO_DIR are not used: imported schedules run "
          "in host mode only in this release");
  } else if (given == nullptr && named) {
    given = ImportedSchedules::load(config_, nranks_, rank_ == 0);
  }
  imported_ = given != nullptr ? given : std::make_shared<const ImportedSchedules>();
  logged_.assign(imported_->all().size(), 0);
}

// After the mesh, which knows how large FIFOs are. Equal on all ranks, as those are.
void Communicator::check_schedules_fit() {
  for (const auto& schedule : imported_->all()) {
    uint8_t& logged = logged_[static_cast<size_t>(&schedule - imported_->all().data())];
    if (const std::string why = lacks_cpu_nodes(*schedule); !why.empty()) {
      logged = kNeverFits;
      if (rank_ == 0) WEFT_WARN("schedule {} is not used: {}", schedule->path, why);
      continue;
    }
    if (fits_fifos(*schedule, mesh_->ring_bytes())) continue;
    logged = kNeverFits;
    if (rank_ == 0)
      WEFT_WARN(
          "schedule {} is not used: it has {} messages of {} chunks on their way at once, too many "
          "for FIFOs of {} bytes (WEFT_RING_BYTES)",
          schedule->path, schedule->fifo_depth, schedule->most_step_chunks, mesh_->ring_bytes());
  }
}

const ImportedSchedule* Communicator::imported_for(const ImportedCall& call) {
  const Generator* forced = forced_[static_cast<size_t>(call.collective.kind)];
  for (size_t i = 0; i < imported_->all().size(); i++) {
    const ImportedSchedule& schedule = *imported_->all()[i];
    if (schedule.collective.kind != call.collective.kind || logged_[i] == kNeverFits) continue;
    const Unfit why = unfit(schedule, call);
    if (why == Unfit::kNone && forced == nullptr) return &schedule;
    // Each rule once, and not by every rank: all decide alike.
    const auto bit = static_cast<uint8_t>(1u << static_cast<unsigned>(why));
    if ((logged_[i] & bit) != 0) continue;
    logged_[i] |= bit;
    if (rank_ == 0)
      WEFT_INFO(kInit, "schedule {} is not used for {} of {} bytes {}: {}", schedule.path,
                name(call.collective.kind), call.bytes, call.in_place ? "in place" : "out of place",
                why == Unfit::kNone ? fmt::format("WEFT_PLAN asks for {}", forced->name)
                                    : describe(why, schedule));
  }
  return nullptr;
}

const Communicator::Plan& Communicator::plan_for(const ImportedSchedule& schedule,
                                                 const Collective& collective, bool in_place) {
  if (const Plan* plan = find_plan(&schedule, collective, in_place)) return *plan;
  auto plan = std::make_unique<Plan>();
  plan->tag = static_cast<uint32_t>(schedule.hash) | 1u;
  return add_plan(std::move(plan), &schedule, schedule.path, collective,
                  *(in_place ? schedule.in_place : schedule.out_of_place), schedule.fifo_depth);
}

}  // namespace weft
