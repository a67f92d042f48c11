// See compression_trial.h.
#include "src/comm/compression_trial.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/siphash.h"
#include "src/planner/cached_file.h"

namespace weft {
namespace {

constexpr int kMostRounds = 3;
// Slow networks are not noisy: one round that takes longer is enough.
constexpr double kLongRoundS = 0.25;

using RoundTimes = std::array<std::array<double, 2>, kCodedLinks>;  // small, large

RoundTimes mean_of_ranks(const std::vector<std::string>& blobs) {
  RoundTimes mean{};
  for (const std::string& blob : blobs) {
    RoundTimes times{};
    if (blob.size() != sizeof times)
      fail(ncclInternalError, "compression: a rank says {} bytes about its times", blob.size());
    std::memcpy(&times, blob.data(), sizeof times);
    for (size_t links = 0; links < times.size(); links++)
      for (size_t size = 0; size < 2; size++)
        mean[links][size] += times[links][size] / static_cast<double>(blobs.size());
  }
  return mean;
}

// Where rank 0 remembers what was decided for these hosts; empty: nowhere.
std::string scopes_path(const Config& config, Communicator& ranks) {
  if (config.cache.empty()) return "";
  std::vector<uint64_t> key;
  if (ranks.on_gpu()) key.push_back(0);  // GPUs of these hosts decide for themselves
  for (int r = 0; r < ranks.nranks(); r++) key.push_back(ranks.mesh().info(r).host);
  return fmt::format("{}/compress-{:016x}", config.cache,
                     siphash(Secret{}, key.data(), key.size() * sizeof(uint64_t)));
}

std::optional<CompressionScopes> remembered(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    return parse_scopes(read_cached(path));
  } catch (const Error& error) {
    WEFT_WARN("{}: {} (it is made anew)", path, error.what());
    return std::nullopt;
  }
}

void remember(const std::string& path, const CompressionScopes& scopes) {
  if (path.empty()) return;
  try {
    write_cached(path, write_scopes(scopes));
  } catch (const Error& error) {
    WEFT_INFO(kInit, "compression: the next run measures afresh: {}", error.what());
  }
}

}  // namespace

CompressionTrial::Ways CompressionTrial::ways() const {
  Ways ways;
  for (const CodedLinks links : {CodedLinks::kBetweenMachines, CodedLinks::kBetweenHosts}) {
    if (links == CodedLinks::kBetweenMachines && !places.mixed()) continue;
    CompressionScopes scopes;
    scopes.fill({links, 0});
    ways[static_cast<size_t>(links)] =
        std::make_shared<const CompressedPlans>(settings, places, false, false, scopes);
  }
  return ways;
}

// All ways in turn, so that what else the machine does hits all of them.
CompressionTimes CompressionTrial::times_of(CollectiveKind kind, const Ways& ways, Trial& trial,
                                            Deadline deadline) const {
  CompressionTimes best;
  for (int round = 0; round < kMostRounds; round++) {
    RoundTimes times{};
    for (size_t links = 0; links < ways.size(); links++) {
      if (links > 0 && ways[links] == nullptr) continue;
      chooser.compress(ways[links]);
      // The first makes the plan. On GPUs each wakes the proxies, which slept while ranks met.
      if (round == 0 || ranks.on_gpu()) trial.seconds(kind, TimeLine::kSmall);
      times[links] = {trial.seconds(kind, TimeLine::kSmall), trial.seconds(kind, TimeLine::kLarge)};
    }
    times = mean_of_ranks(control.all_gather(
        std::string(reinterpret_cast<const char*>(&times), sizeof times), deadline));
    double all = 0;
    for (size_t links = 0; links < times.size(); links++) {
      const auto [small, large] = times[links];
      TimeLine& line = best[links];
      line.small = round == 0 ? small : std::min(line.small, small);
      line.large = round == 0 ? large : std::min(line.large, large);
      all += small + large;
    }
    if (all > kLongRoundS) break;
  }
  return best;
}

CompressionScopes CompressionTrial::run(Deadline deadline) const {
  const std::string path = ranks.rank() == 0 ? scopes_path(config, ranks) : "";
  const std::optional<CompressionScopes> before = remembered(path);
  CompressionScopes scopes;
  scopes.fill({CodedLinks::kNone, kCompressFrom});
  const Ways tried = ways();
  Trial trial(ranks, TimeLine::kLarge);
  control.all_gather("tries compression", deadline);
  for (size_t k = 0; k < scopes.size(); k++) {
    if (!settings.rules[k]) continue;
    const auto kind = static_cast<CollectiveKind>(k);
    const CompressionTimes times = times_of(kind, tried, trial, deadline);
    if (ranks.rank() != 0) continue;
    scopes[k] = decide(times, before ? &(*before)[k] : nullptr);
    WEFT_INFO(kInit, "compression: {} of 8 MiB in {:.1f} ms compressed, {:.1f} ms as it is: {}",
              name(kind), 1e3 * times.back().large, 1e3 * times.front().large, describe(scopes[k]));
  }
  chooser.compress(nullptr);
  if (scopes != before) remember(path, scopes);
  return parse_scopes(control.all_gather(write_scopes(scopes), deadline)[0]);
}

}  // namespace weft
