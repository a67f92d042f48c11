// See cost_model.h.
#include "src/planner/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/simulator/simulator.h"

namespace weft {
namespace {

// Bytes of all ranks' buffers together.
double footprint(const Collective& c, double block) {
  double blocks = 0;
  for (int r = 0; r < c.nranks; r++) blocks += c.input_blocks(r) + c.output_blocks(r);
  return blocks * block;
}

// The rate for a footprint of `bytes`, interpolated on the logarithm between the three sizes.
double rate_at(double bytes, double near, double middle, double far) {
  constexpr double kNear = 256 << 10, kMiddle = 8 << 20, kFar = 256 << 20;
  const auto share = [&](double low, double high) {
    return std::clamp(std::log(bytes / low) / std::log(high / low), 0.0, 1.0);
  };
  if (bytes <= kNear) return near;
  if (bytes <= kMiddle) return near + (middle - near) * share(kNear, kMiddle);
  return middle + (far - middle) * share(kMiddle, kFar);
}

// Linear interpolation between the points; beyond them, the nearest point's value.
double between(std::vector<std::pair<double, double>> points, double x) {
  std::sort(points.begin(), points.end());
  if (points.empty()) return 0;
  if (x <= points.front().first) return points.front().second;
  for (size_t i = 1; i < points.size(); i++) {
    const auto& [x0, y0] = points[i - 1];
    const auto& [x1, y1] = points[i];
    if (x <= x1) return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y1;
  }
  return points.back().second;
}

// Ranks on GPUs. The ranks of one GPU share its memory bandwidth.
double predict_on_gpus(const ScheduleShape& shape, double chunk, const HostSetting& setting,
                       const Rates& rates) {
  double touched = 0, passed = 0;
  for (const RankShape& rank : shape.ranks) {
    touched += rank.touched * chunk;
    passed += rank.passed * chunk;
  }
  const double gpus = std::max(1, setting.cores);
  const double hop =
      rates.hop_us + rates.switch_us * static_cast<double>(shape.ranks.size()) / gpus;
  const double memory_us_mb =
      rate_at(touched, rates.copy_us_mb, rates.copy_mid_us_mb, rates.copy_far_us_mb);
  return rates.call_us + shape.hops * hop +
         (touched * memory_us_mb + passed * rates.packet_us_mb) * 1e-6 / gpus;
}

}  // namespace

std::string factor_key(CollectiveKind kind, std::string_view plan) {
  return fmt::format("{} {}", name(kind), plan);
}

double factor_at(const PlanFactors& factors, const Collective& collective, std::string_view plan,
                 double bytes) {
  const auto it = factors.find(factor_key(collective.kind, plan));
  if (it == factors.end()) return 1;
  std::map<int, std::vector<std::pair<double, double>>> by_ranks;
  for (const FactorPoint& point : it->second)
    by_ranks[point.ranks].emplace_back(std::log2(point.bytes), std::log2(point.factor));
  std::vector<std::pair<double, double>> along_ranks;
  for (auto& [ranks, points] : by_ranks)
    along_ranks.emplace_back(std::log2(ranks),
                             between(std::move(points), std::log2(std::max(bytes, 1.0))));
  return std::exp2(between(std::move(along_ranks), std::log2(collective.nranks)));
}

double predict(const ScheduleShape& shape, const Collective& collective, double bytes,
               const HostSetting& setting, const Rates& rates) {
  const double block = block_bytes(collective, bytes);
  const double chunk = block / shape.chunks;
  if (setting.on_gpus) return predict_on_gpus(shape, chunk, setting, rates);
  const double slices = std::max(1.0, std::ceil(chunk / setting.slice_bytes));
  const double mb = chunk * 1e-6;
  const bool lent = setting.one_process && lending_pays(collective.kind, bytes) &&
                    std::min(chunk, setting.slice_bytes) >= setting.lend_bytes;
  const double all = footprint(collective, block);
  const double copy_us =
      mb * rate_at(all, rates.copy_us_mb, rates.copy_mid_us_mb, rates.copy_far_us_mb);
  const double reduce_us =
      mb * rate_at(all, rates.reduce_us_mb, rates.reduce_mid_us_mb, rates.reduce_far_us_mb);

  struct HostWork {
    double us = 0, net_bytes = 0;
    int ranks = 0;
  };
  std::map<int, HostWork> work;
  double busiest = 0;
  for (size_t r = 0; r < shape.ranks.size(); r++) {
    const RankShape& rank = shape.ranks[r];
    const double us = slices * (rank.steps * rates.step_us + rank.messages * rates.message_us +
                                rank.net_messages * rates.net_message_us) +
                      (lent ? rank.copied_lending : rank.copied) * copy_us +
                      rank.reduced * reduce_us + rank.net_chunks * mb * rates.net_us_mb;
    HostWork& host = work[setting.hosts.empty() ? 0 : setting.hosts[r]];
    host.us += us;
    host.net_bytes += rank.net_chunks * chunk;
    host.ranks++;
    busiest = std::max(busiest, us);
  }
  double most = busiest, together = 0;
  double crowd = 1;
  for (const auto& [host, share] : work) {
    // Ranks are indivisible: of three on two cores, two share a core.
    const double on_a_core =
        std::ceil(static_cast<double>(share.ranks) / std::max(1, setting.cores));
    most = std::max(most, share.us / share.ranks * on_a_core);
    crowd = std::max(crowd, on_a_core);
    // A NIC sends and receives at once.
    if (setting.nic_gbps > 0) most = std::max(most, share.net_bytes / 2 / setting.nic_gbps * 1e-3);
    together += share.us;
  }
  if (setting.pretended_hosts) {
    const auto ranks = static_cast<double>(shape.ranks.size());
    const double on_a_core = std::ceil(ranks / std::max(1, setting.cores));
    most = std::max(most, together / ranks * on_a_core);
    crowd = std::max(crowd, on_a_core);
  }
  const double hop = crowd > 1 ? rates.switch_us * crowd : rates.hop_us;
  const double net_hop = rates.net_hop_us + (crowd > 1 ? rates.switch_us * crowd : 0);
  return rates.call_us + shape.hops * hop + shape.net_hops * net_hop + most;
}

}  // namespace weft
