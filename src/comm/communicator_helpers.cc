// Hosts that help a communicator: whether it has some, and for which sizes that is faster.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/communicator.h"
#include "src/comm/helping_hosts.h"
#include "src/comm/trial.h"
#include "src/planner/time_line.h"

namespace weft {
namespace {

// help() or help_compressed().
using HelpWith = void (PlanChooser::*)(const ImportedSchedule*, size_t);
constexpr size_t kLeastHelped = size_t{64} << 10;
// Hosts that save less are better used otherwise.
constexpr double kWorthHelp = 0.95;

// All ranks time both plans, and all decide by the same times.
std::optional<size_t> measured_from(Communicator& ranks, PlanChooser& chooser,
                                    ControlChannel& control, const ImportedSchedule& plan,
                                    HelpWith help, const char* what, Deadline deadline) {
  std::array<double, 4> times{};
  constexpr CollectiveKind kSum = CollectiveKind::kAllReduce;
  Trial trial(ranks, TimeLine::kLarge);
  times[0] = trial.best_seconds(kSum, TimeLine::kSmall);
  times[1] = trial.best_seconds(kSum, TimeLine::kLarge);
  (chooser.*help)(&plan, 0);
  times[2] = trial.best_seconds(kSum, TimeLine::kSmall);
  times[3] = trial.best_seconds(kSum, TimeLine::kLarge);
  (chooser.*help)(nullptr, 0);
  TimeLine alone, helped;
  for (const std::string& blob : control.all_gather(
           std::string(reinterpret_cast<const char*>(times.data()), sizeof times), deadline)) {
    if (blob.size() == sizeof times) std::memcpy(times.data(), blob.data(), sizeof times);
    alone.small += times[0] / ranks.nranks();
    alone.large += times[1] / ranks.nranks();
    helped.small += times[2] / ranks.nranks();
    helped.large += times[3] / ranks.nranks();
  }
  const auto from = faster_from(alone, helped, kWorthHelp, kLeastHelped);
  if (ranks.rank() == 0)
    WEFT_INFO(kInit, "helpers: 8 MiB{} in {:.1f} ms with them, {:.1f} ms without: {}", what,
              1e3 * helped.large, 1e3 * alone.large,
              from ? fmt::format("used from {} bytes on", *from) : "not used");
  return from;
}

}  // namespace

void Communicator::use_helpers(Deadline deadline) {
  const int nranks = options_.nranks;
  if (config_.helpers.empty() || nranks < 2) return;
  std::set<uint64_t> hosts;
  for (int r = 0; r < nranks; r++) hosts.insert(mesh_->info(r).host);
  const char* why = config_.secret.empty() ? "it needs WEFT_SECRET, which weft serve has too"
                    : on_gpu()             ? "hosts help in host mode only"
                    : hosts.size() < static_cast<size_t>(nranks)
                        ? "hosts help ranks that have a host each"
                        : nullptr;
  // Rank 0 decides: WEFT_SECRET may be unset elsewhere.
  if (control_->all_gather(why != nullptr ? "no" : "", deadline)[0] == "no") {
    if (options_.rank == 0) WEFT_WARN("WEFT_HELPERS has no effect: {}", why);
    return;
  }
  auto invited =
      HelpingHosts::invite(options_, config_, *control_, deadline,
                           [this](const std::string& text) { announce(ncclRemoteError, text); });
  if (invited == nullptr) return;
  HelpingHosts& helpers = *invited;
  {
    std::lock_guard lock(vigil_.mutex);
    host_->use(std::move(invited));
  }
  check();
  const std::optional<size_t> from =
      config_.helpers_from > 0 ? config_.helpers_from
                               : measured_from(*this, *chooser_, *control_, helpers.plan(),
                                               &PlanChooser::help, "", deadline);
  if (!from) return helpers.finish();
  chooser_->help(&helpers.plan(), *from);
  if (options_.rank == 0)
    WEFT_INFO(kInit, "{} host{} with all_reduces from {} bytes on", helpers.names().size(),
              helpers.names().size() == 1 ? " helps" : "s help", *from);
}

// Helpers have no memory of losses, so they do not sum where these are kept.
void Communicator::use_helpers_compressed(const CompressionSettings& settings, Deadline deadline) {
  const auto& rule = settings.rules[static_cast<size_t>(CollectiveKind::kAllReduce)];
  HelpingHosts* helpers = host_->helpers();
  if (helpers == nullptr || helpers->over() || !rule || rule->feedback || !rule->codec.lossy())
    return;
  const ImportedSchedule& plan = helpers->plan_with(rule->codec);
  const std::optional<size_t> from =
      config_.helpers_from > 0
          ? config_.helpers_from
          : measured_from(*this, *chooser_, *control_, plan, &PlanChooser::help_compressed,
                          ", compressed,", deadline);
  if (from) chooser_->help_compressed(&plan, *from);
}

}  // namespace weft
