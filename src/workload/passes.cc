// See passes.h.
#include "src/workload/passes.h"

#include <fmt/format.h>

#include <array>

#include "src/base/error.h"
#include "src/workload/check.h"

namespace weft::workload {

Search::Search(const Graph& original, CommCosts& costs)
    : original_(original), costs_(costs), best_(original), timeline_(run(original, costs)) {}

bool Search::offer(const Graph& graph, const std::string& what) {
  return offer_with_slack(graph, what, 1 - 1e-6);
}

bool Search::offer_with_slack(const Graph& graph, const std::string& what, double slack) {
  try {
    (void)order_of(graph, graph.name);
  } catch (const Error&) {
    // Earlier passes have put operations into an order that this one cannot build on.
    note(fmt::format("{}: '{}' is not possible after the passes before it", pass_, what));
    return false;
  }
  check_rewritten(original_, graph);
  Timeline line = run(graph, costs_);
  tried_.push_back({pass_, what, line.us, line.exposed_us, false});
  if (line.us > timeline_.us * slack) return false;
  tried_.back().taken = true;
  best_ = graph;
  timeline_ = std::move(line);
  return true;
}

std::vector<int> Search::host_of_rank() const {
  std::vector<int> hosts;
  const Machine& machine = costs_.machine();
  for (const int gpu : gpus(machine)) hosts.push_back(machine.nodes[static_cast<size_t>(gpu)].host);
  return hosts;
}

std::span<const Pass> passes() {
  static constexpr std::array<Pass, 6> kAll = {{
      {"megatron", "gradients reduced and parameters gathered beside compute, in buckets",
       pass_megatron},
      {"centauri", "collectives replaced, split by hosts and cut into parts; three tiers",
       pass_centauri},
      {"lancet", "weight gradients under all-to-all; all-to-all in parts", pass_lancet},
      {"chain", "the parts of an all_reduce go into the next forward as they come (C-Cube)",
       pass_chain},
      {"fisher", "extra work fills the bubbles of a pipeline (PipeFisher)", pass_fisher},
      {"terapipe", "sequences run through a pipeline in slices of tokens", pass_terapipe},
  }};
  return kAll;
}

const Pass* find_pass(std::string_view name) {
  for (const Pass& pass : passes())
    if (name == pass.name) return &pass;
  return nullptr;
}

}  // namespace weft::workload
