// Compression of a communicator: all ranks must set the same.
#include <cstring>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/cluster.h"
#include "src/comm/communicator.h"
#include "src/comm/trial.h"
#include "src/exec/cuda/lane_image.h"

namespace weft {
namespace {

std::vector<int> hosts_of(const Mesh& mesh, int nranks) {
  std::vector<PeerInfo> infos;
  for (int r = 0; r < nranks; r++) infos.push_back(mesh.info(r));
  return host_numbers(infos);
}

// `auto` compares one all_reduce of this many floats as it is and compressed.
constexpr size_t kTrialCount = size_t{1} << 20;
// Compression that saves less is not worth its errors.
constexpr double kWorthwhile = 0.95;

// Why GPUs do not compress so; empty: they do.
std::string unfit_for_gpus(const CompressionSettings& settings, const Placement& placement) {
  if (!placement.lanes) return "these GPUs run no lanes (WEFT_NET_LANES)";
  if (settings.automatic) return "auto is for host mode; name the codecs";
  for (const auto& rule : settings.rules) {
    if (!rule) continue;
    if (std::string why = cuda::unfit_for_lanes({rule->codec}); !why.empty()) return why;
  }
  return "";
}

}  // namespace

void Communicator::set_compression(const std::string& text) {
  const Deadline deadline = in_seconds(config_.init_timeout_s);
  compare_compression(control_->all_gather(text, deadline));
  use_compression(text, true, deadline);
}

void Communicator::use_compression(const std::string& text, bool asked, Deadline deadline) {
  const CompressionSettings settings = CompressionSettings::parse(text);
  bool possible = !settings.off() && options_.nranks > 1;
  if (const std::string why =
          possible && on_gpu() ? unfit_for_gpus(settings, chooser_->placement()) : "";
      !why.empty()) {
    if (asked) fail(ncclInvalidUsage, "compression: {}", why);
    if (options_.rank == 0) WEFT_WARN("WEFT_COMPRESS has no effect: {}", why);
    possible = false;
  }
  std::shared_ptr<const CompressedPlans> plans;
  if (possible)
    plans = std::make_shared<const CompressedPlans>(settings, hosts_of(*mesh_, options_.nranks),
                                                    asked, options_.rank == 0);
  chooser_->compress(nullptr);
  host_->forget_losses();
  if (gpu_ != nullptr) gpu_->forget_losses();
  if (plans != nullptr && settings.automatic && plans->any()) {
    // All ranks try both, and all decide by the same times.
    const CompressionCount::Numbers counted = host_->compression().numbers();
    double times[2] = {trial_seconds(*this, kTrialCount), 0};
    chooser_->compress(plans);
    times[1] = trial_seconds(*this, kTrialCount);
    host_->compression().set(counted);
    double plain = 0, coded = 0;
    for (const std::string& blob : control_->all_gather(
             std::string(reinterpret_cast<const char*>(times), sizeof times), deadline)) {
      if (blob.size() == sizeof times) std::memcpy(times, blob.data(), sizeof times);
      plain += times[0];
      coded += times[1];
    }
    const bool pays = coded < kWorthwhile * plain;
    if (options_.rank == 0)
      WEFT_INFO(kInit, "compression: {:.0f} us compressed, {:.0f} us as it is: {}",
                1e6 * coded / options_.nranks, 1e6 * plain / options_.nranks,
                pays ? "used" : "not used");
    if (!pays) plans = nullptr;
  }
  chooser_->compress(std::move(plans));
}

}  // namespace weft
