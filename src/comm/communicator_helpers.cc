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

namespace weft {
namespace {

// Two sizes make a line: time = fixed + bytes * slope.
constexpr size_t kSmallTrial = size_t{1} << 20, kLargeTrial = size_t{8} << 20;
constexpr size_t kLeastHelped = size_t{64} << 10;
// Hosts that save less are better used otherwise.
constexpr double kWorthHelp = 0.95;

struct Line {
  double small = 0, large = 0;  // seconds
  double at(size_t bytes) const {
    const double slope = (large - small) / static_cast<double>(kLargeTrial - kSmallTrial);
    return small + slope * (static_cast<double>(bytes) - static_cast<double>(kSmallTrial));
  }
};

// The smallest size from which helpers are faster; nothing: they are not.
std::optional<size_t> helped_from(const Line& alone, const Line& helped) {
  if (helped.large > kWorthHelp * alone.large) return std::nullopt;
  size_t from = kLargeTrial;
  while (from > kLeastHelped && helped.at(from / 2) < kWorthHelp * alone.at(from / 2)) from /= 2;
  return from;
}

// All ranks time both plans, and all decide by the same times.
std::optional<size_t> measured_from(Communicator& ranks, PlanChooser& chooser,
                                    ControlChannel& control, const ImportedSchedule& plan,
                                    Deadline deadline) {
  std::array<double, 4> times{};
  times[0] = trial_seconds(ranks, kSmallTrial / sizeof(float));
  times[1] = trial_seconds(ranks, kLargeTrial / sizeof(float));
  chooser.help(&plan, 0);
  times[2] = trial_seconds(ranks, kSmallTrial / sizeof(float));
  times[3] = trial_seconds(ranks, kLargeTrial / sizeof(float));
  chooser.help(nullptr, 0);
  Line alone, helped;
  for (const std::string& blob : control.all_gather(
           std::string(reinterpret_cast<const char*>(times.data()), sizeof times), deadline)) {
    if (blob.size() == sizeof times) std::memcpy(times.data(), blob.data(), sizeof times);
    alone.small += times[0] / ranks.nranks();
    alone.large += times[1] / ranks.nranks();
    helped.small += times[2] / ranks.nranks();
    helped.large += times[3] / ranks.nranks();
  }
  const auto from = helped_from(alone, helped);
  if (ranks.rank() == 0)
    WEFT_INFO(kInit, "helpers: 8 MiB in {:.1f} ms with them, {:.1f} ms without: {}",
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
      config_.helpers_from > 0
          ? config_.helpers_from
          : measured_from(*this, *chooser_, *control_, helpers.plan(), deadline);
  if (!from) return helpers.finish();
  chooser_->help(&helpers.plan(), *from);
  if (options_.rank == 0)
    WEFT_INFO(kInit, "{} host{} with all_reduces from {} bytes on", helpers.names().size(),
              helpers.names().size() == 1 ? " helps" : "s help", *from);
}

}  // namespace weft
