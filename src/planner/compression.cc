// See compression.h.
#include "src/planner/compression.h"

#include <algorithm>

#include "algorithms/generators/coded.h"
#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {
bool RankHomes::mixed() const {
  bool near = false, far = false;
  for (size_t a = 0; a < hosts.size(); a++)
    for (size_t b = 0; b < a; b++) {
      far = far || machines[a] != machines[b];
      near = near || (machines[a] == machines[b] && hosts[a] != hosts[b]);
    }
  return near && far;
}

CompressedPlans::CompressedPlans(const CompressionSettings& settings, const RankHomes& places,
                                 bool asked, bool tells, const CompressionScopes& scopes)
    : settings_(settings), asked_(asked), tells_(tells), scopes_(scopes) {
  for (const CollectiveKind kind : kCompressedKinds) {
    const auto& rule = settings_.rules[static_cast<size_t>(kind)];
    const CodedLinks links = scopes_[static_cast<size_t>(kind)].links;
    if (!rule || links == CodedLinks::kNone) continue;
    const Collective collective{kind, static_cast<int>(places.hosts.size()), 0};
    const std::string why = why_not_coded(collective, places.hosts, rule->codec);
    if (!why.empty()) {
      if (tells_) WEFT_INFO(kInit, "{} is not compressed: {}", name(kind), why);
      continue;
    }
    ScheduleFile file;
    file.schedule = make_coded(collective, places.hosts, rule->codec,
                               links == CodedLinks::kBetweenMachines ? std::span(places.machines)
                                                                     : std::span<const int>());
    plans_[static_cast<size_t>(kind)] =
        ImportedSchedules::only(file, file.schedule.name)->all().front();
  }
}

CompressedPlans::Found CompressedPlans::find(const PlanCall& call) const {
  const auto kind = static_cast<size_t>(call.collective.kind);
  if (plans_[kind] == nullptr || call.bytes < scopes_[kind].from) return {};
  if (call.numbers == PlanCall::Numbers::kFloatSums)
    return {plans_[kind].get(), &*settings_.rules[kind]};
  const char* why = call.numbers == PlanCall::Numbers::kOtherTypes
                        ? "only float32, float16 and bfloat16 are compressed"
                        : "only sums and averages are compressed";
  if (asked_)
    fail(ncclInvalidArgument, "{} of a communicator with compression: {}",
         name(call.collective.kind), why);
  if (tells_ && !logged_.exchange(true))
    WEFT_INFO(kColl, "a call of {} is not compressed: {}", name(call.collective.kind), why);
  return {};
}

const CompressionRule* CompressedPlans::permits(const ImportedSchedule& schedule) const {
  const auto& rule = settings_.rules[static_cast<size_t>(schedule.collective.kind)];
  const std::vector<CodecSpec>& codecs = schedule.codecs();
  const auto as_ruled = [&](const CodecSpec& spec) {
    return spec.kind == Codec::kWiden || spec == rule->codec;
  };
  if (rule && std::all_of(codecs.begin(), codecs.end(), as_ruled)) return &*rule;
  return settings_.imported ? &by_import_ : nullptr;
}

void CompressedPlans::tell_forced(const PlanCall& call, std::string_view plan) const {
  if (!tells_ || plans_[static_cast<size_t>(call.collective.kind)] == nullptr ||
      call.bytes < scopes_[static_cast<size_t>(call.collective.kind)].from ||
      call.numbers != PlanCall::Numbers::kFloatSums)
    return;
  if (!logged_forced_.exchange(true))
    WEFT_WARN("{} is not compressed: WEFT_PLAN or weftForcePlan asks for {}",
              name(call.collective.kind), plan);
}

bool CompressedPlans::any() const {
  return std::any_of(plans_.begin(), plans_.end(),
                     [](const auto& plan) { return plan != nullptr; });
}

}  // namespace weft
