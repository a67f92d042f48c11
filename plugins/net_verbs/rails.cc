// See rails.h.
#include "plugins/net_verbs/rails.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::net_verbs {
namespace {

// How well two rails fit; negative: not at all.
int fit(const RailAddress& a, const RailAddress& b, GidPair& gids) {
  if (a.ethernet != b.ethernet) return -1;
  if (a.ethernet == 0) return 0;  // presumably one fabric
  if (!match_gids(a.gid_list(), b.gid_list(), gids)) return -1;
  return gids.one_subnet ? 1 : 0;
}

std::vector<RailPair> pair_all(std::span<const RailAddress> connecting,
                               std::span<const RailAddress> listening) {
  const bool turned = connecting.size() < listening.size();
  const auto many = turned ? listening : connecting, few = turned ? connecting : listening;
  std::vector<RailPair> pairs;
  std::vector<int> scores;
  std::vector<int> used(few.size(), 0);
  for (size_t i = 0; i < many.size(); i++) {
    int best = -1, best_used = 0;
    size_t chosen = 0;
    GidPair gids;
    for (size_t k = 0; k < few.size(); k++) {
      const size_t j = (i + k) % few.size();
      GidPair candidate;
      const int score = fit(many[i], few[j], candidate);
      if (score < 0 || score < best || (score == best && used[j] >= best_used)) continue;
      best = score;
      best_used = used[j];
      chosen = j;
      gids = candidate;
    }
    if (best < 0) continue;
    used[chosen]++;
    RailPair pair{static_cast<uint8_t>(i), static_cast<uint8_t>(chosen),
                  static_cast<uint8_t>(gids.first), static_cast<uint8_t>(gids.second),
                  std::min(many[i].speed_mbps, few[chosen].speed_mbps)};
    if (turned) {
      std::swap(pair.first, pair.second);
      std::swap(pair.first_gid, pair.second_gid);
    }
    pairs.push_back(pair);
    scores.push_back(best);
  }
  // If some pairs are in one subnet, the other pairs may not work.
  const int needed = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  size_t kept = 0;
  for (size_t p = 0; p < pairs.size(); p++)
    if (scores[p] == needed) pairs[kept++] = pairs[p];
  pairs.resize(kept);
  return pairs;
}

std::span<const RailAddress> without_spares(std::span<const RailAddress> rails) {
  const auto spare = [](const RailAddress& rail) { return rail.spare != 0; };
  return rails.first(
      static_cast<size_t>(std::find_if(rails.begin(), rails.end(), spare) - rails.begin()));
}

}  // namespace

std::string describe(const RailAddress& rail) {
  return fmt::format("{} port {}", rail.device, rail.port);
}

std::vector<RailPair> pair_rails(std::span<const RailAddress> connecting,
                                 std::span<const RailAddress> listening) {
  std::vector<RailPair> pairs = pair_all(without_spares(connecting), without_spares(listening));
  if (pairs.empty()) return pairs;
  for (RailPair& pair : pair_all(connecting, listening)) {
    const bool known = std::any_of(pairs.begin(), pairs.end(), [&](const RailPair& other) {
      return pair.first == other.first && pair.second == other.second;
    });
    if (known || pairs.size() == kMaxRails) continue;
    pair.spare = true;
    pairs.push_back(pair);
  }
  return pairs;
}

Division::Division(std::span<const LaneRate> lanes, bool split) {
  if (split) {
    rows_.emplace_back(lanes.begin(), lanes.end());
    return;
  }
  // The nth lane of every pair is in row n.
  std::vector<size_t> seen;
  for (const LaneRate& lane : lanes) {
    if (seen.size() <= lane.pair) seen.resize(lane.pair + 1, 0);
    const size_t row = seen[lane.pair]++;
    if (rows_.size() <= row) rows_.resize(row + 1);
    rows_[row].push_back(lane);
  }
}

Stripes Division::divide(uint64_t message, uint64_t size) const {
  Stripes stripes;
  const auto& row = rows_[message % rows_.size()];
  const size_t lanes = std::min<uint64_t>(row.size(), size / kLeastShare);
  if (lanes < 2) {
    const size_t turn = (message / rows_.size()) % row.size();
    stripes.list[0] = {row[turn].lane, 0, size};
    stripes.count = 1;
    return stripes;
  }
  uint64_t all = 0, before = 0;
  for (const LaneRate& lane : row) all += std::max(1u, lane.speed_mbps);
  uint64_t begin = 0;
  for (size_t i = 0; i < row.size(); i++) {
    before += std::max(1u, row[i].speed_mbps);
    const auto cut = static_cast<uint64_t>(static_cast<__uint128_t>(size) * before / all);
    const uint64_t end = i + 1 == row.size() ? size : cut / 4096 * 4096;
    if (end <= begin) continue;
    stripes.list[stripes.count++] = {row[i].lane, begin, end};
    begin = end;
  }
  return stripes;
}

}  // namespace weft::net_verbs
