// Compression of a communicator: all ranks must set the same.
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/cluster.h"
#include "src/comm/communicator.h"
#include "src/comm/compression_trial.h"
#include "src/comm/gpu_launcher.h"
#include "src/exec/cuda/lane_image.h"

namespace weft {
namespace {

RankHomes places_of(const Mesh& mesh, int nranks) {
  std::vector<PeerInfo> infos;
  for (int r = 0; r < nranks; r++) infos.push_back(mesh.info(r));
  RankHomes places{host_numbers(infos), {}};
  for (PeerInfo& info : infos) info.host = info.machine;
  places.machines = host_numbers(infos);
  return places;
}

// Why GPUs do not compress so; empty: they do.
std::string unfit_for_gpus(const CompressionSettings& settings, const Placement& placement) {
  if (!placement.lanes && !placement.coded_lanes) return "these GPUs run no lanes (WEFT_NET_LANES)";
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
  chooser_->compress(nullptr);
  chooser_->help_compressed(nullptr, 0);
  host_->forget_losses();
  if (gpu_ != nullptr) gpu_->forget_losses();
  if (!possible) return;
  const RankHomes places = places_of(*mesh_, options_.nranks);
  const auto with = [&](const CompressionScopes& scopes, bool tells) {
    return std::make_shared<const CompressedPlans>(settings, places, asked, tells, scopes);
  };
  CompressionScopes scopes;
  if (settings.automatic) {
    if (!with({}, options_.rank == 0)->any()) return;
    const CompressionCount::Numbers before = host_->compression().numbers();
    scopes = CompressionTrial{*this, config_, *chooser_, *control_, settings, places}.run(deadline);
    host_->compression().set(before);
  }
  auto plans = with(scopes, options_.rank == 0);
  if (!plans->any() && settings.automatic) return;
  chooser_->compress(std::move(plans));
  const CompressionCount::Numbers counted = host_->compression().numbers();
  use_helpers_compressed(settings, deadline);
  host_->compression().set(counted);
}

}  // namespace weft
