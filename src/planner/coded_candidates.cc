// See coded_candidates.h.
#include "src/planner/coded_candidates.h"

#include <initializer_list>
#include <utility>

#include "algorithms/generators/coded.h"
#include "src/base/error.h"
#include "src/planner/rates_file.h"

namespace weft {

namespace {

CodecCosts table(std::initializer_list<std::pair<Codec, CodecCost>> rows) {
  CodecCosts costs{};
  for (const auto& [kind, cost] : rows) costs[static_cast<size_t>(kind)] = cost;
  return costs;
}

}  // namespace

CodecCosts default_codec_costs() {
  return table({{Codec::kInt8, {150, 75}},
                {Codec::kInt4, {200, 100}},
                {Codec::kFp8, {250, 150}},
                {Codec::kOneBit, {500, 250}},
                {Codec::kTopK, {5000, 100}},
                {Codec::kWiden, {75, 75}}});
}

// Half the rates of 16 thread blocks of an H200, whose slots lie in host memory (codec_perf -b 16).
CodecCosts gpu_codec_costs() {
  return table({{Codec::kInt8, {28, 42}},
                {Codec::kInt4, {29, 42}},
                {Codec::kFp8, {30, 42}},
                {Codec::kOneBit, {38, 41}},
                {Codec::kTopK, {115, 284}},
                {Codec::kWiden, {43, 86}}});
}

CodecCosts codec_costs(const Config& config, bool on_gpus) {
  if (on_gpus) return gpu_codec_costs();
  CodecCosts costs = default_codec_costs();
  if (const auto rates = load_rates(config))
    for (const auto& [kind, cost] : rates->codecs) costs[static_cast<size_t>(kind)] = cost;
  return costs;
}

std::vector<int> hosts_of_gpus(const Machine& machine) {
  std::vector<int> hosts;
  for (const int gpu : gpus(machine)) hosts.push_back(machine.nodes[static_cast<size_t>(gpu)].host);
  return hosts;
}

CodedCandidate evaluate_coded(const Machine& machine, const Collective& collective, double bytes,
                              const CodecSpec& spec, SimulationOptions options,
                              const CodecCosts& costs) {
  std::vector<int> hosts = hosts_of_gpus(machine);
  hosts.resize(static_cast<size_t>(collective.nranks));
  if (const std::string why = why_not_coded(collective, hosts, spec); !why.empty())
    fail(ncclInvalidUsage, "{}: {} is not compressed: {}", machine.name, name(collective.kind),
         why);
  CodedCandidate candidate;
  candidate.spec = spec;
  candidate.schedule = make_coded(collective, hosts, spec);
  candidate.passes = verify(candidate.schedule, false, options.fifo_depth).passes();
  verify(candidate.schedule, true, options.fifo_depth);
  candidate.in_place = true;
  options.codecs = costs;
  options.element_bytes = 4;
  const Simulation simulation = simulate(machine, candidate.schedule, bytes, options);
  candidate.time_us = simulation.time_us;
  candidate.algbw_gbps = simulation.algbw_gbps;
  candidate.share = static_cast<double>(encoded_bytes(spec, kMostBlock, 4)) / (4.0 * kMostBlock);
  candidate.bound = codec_bound(spec, 23);
  return candidate;
}

}  // namespace weft
