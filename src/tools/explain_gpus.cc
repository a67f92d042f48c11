// See explain_gpus.h.
#include "src/tools/explain_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "algorithms/bounds/bounds.h"
#include "src/planner/plan_facts.h"
#include "src/simulator/simulator.h"
#include "src/tools/answers.h"
#include "src/topology/graph/rank_machine.h"

namespace weft {
namespace {

struct Answer {
  Choice choice;
  PlanFacts facts;
  int lanes = 0, channels = 0, chunks = 1, hops = 0;
  double time_us = 0, bound_us = 0, network_bytes = 0;
};

Schedule schedule_of(const Choice& choice, const Collective& collective,
                     const Placement& placement) {
  if (choice.schedule == nullptr)
    return choice.generator->make_on(placement.hosts, collective, false);
  const ImportedSchedule& made = *choice.schedule;
  return (made.out_of_place != nullptr ? made.out_of_place : made.in_place)->schedule();
}

Answer answer_for(const GpuExplanation& on, const Collective& collective, uint64_t bytes) {
  Answer answer;
  const Machine machine = on.blocks > 0 ? peer_ways(on.machine) : on.machine;
  const PlanCall call = PlanCall::of_size(collective, bytes);
  answer.choice = on.chooser.choose(call);
  const Schedule schedule = schedule_of(answer.choice, collective, on.chooser.placement());
  answer.facts = plan_facts(machine, schedule);
  // In host mode all messages inside a host go through its memory.
  if (on.blocks == 0) answer.facts.host_memory += std::exchange(answer.facts.peer_memory, 0);
  const ScheduleShape shape = shape_of(schedule);
  answer.lanes = shape.lanes;
  answer.channels = shape.channels;
  answer.chunks = shape.chunks;
  answer.hops = shape.hops;
  const double size = static_cast<double>(bytes);
  const double gbps = throughput_bound(machine, collective).algbw_gbps;
  answer.bound_us = gbps > 0 ? size / gbps * 1e-3 : 0;
  // Times between simulated sizes are interpolated. No plan beats the bound. 0: unknown.
  answer.time_us = on.chooser.estimate_us(call);
  if (answer.time_us > 0) answer.time_us = std::max(answer.time_us, answer.bound_us);
  answer.network_bytes = answer.facts.network_blocks * block_bytes(collective, size);
  return answer;
}

Collective collective_on(const GpuExplanation& on, CollectiveKind kind) {
  return {kind, static_cast<int>(gpus(on.machine).size()), 0};
}

// What people would expect to be used, and is not.
constexpr const char* kUnusedLinks =
    "NVLink between hosts is not used: peer memory ends at the host, the network joins hosts";

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text.empty() ? "none" : text;
}

}  // namespace

nlohmann::ordered_json explain_call(const GpuExplanation& on, CollectiveKind kind, uint64_t bytes) {
  const Answer answer = answer_for(on, collective_on(on, kind), bytes);
  nlohmann::ordered_json out;
  out["plan"] = answer.choice.name;
  out["path"] = name_of(answer.choice.path);
  out["lanes"] = answer.lanes;
  out["channels"] = answer.channels;
  out["chunks"] = answer.chunks;
  if (on.blocks > 0) out["blocks"] = on.blocks;
  out["ports"] = {{"peer_memory", answer.facts.peer_memory},
                  {"host_memory", answer.facts.host_memory},
                  {"network", answer.facts.network}};
  out["hops"] = answer.hops;
  out["nics"] = answer.facts.nics;
  out["network_bytes"] = number(answer.network_bytes);
  if (answer.time_us > 0) out["time_us"] = number(answer.time_us);
  out["bound_us"] = number(answer.bound_us);
  if (on.blocks > 0 && links_hosts(on.machine)) out["note"] = kUnusedLinks;
  return out;
}

void print_call(const GpuExplanation& on, CollectiveKind kind, uint64_t bytes) {
  const Answer answer = answer_for(on, collective_on(on, kind), bytes);
  const PlanFacts& facts = answer.facts;
  const SelectionTable& table = on.chooser.agreed().table;
  fmt::print("{} of {} bytes takes {}\n", name(kind), bytes, answer.choice.name);
  fmt::print("path     {}, {} lane{}, {} channel{}, {} chunk{} a block{}\n",
             name_of(answer.choice.path), answer.lanes, answer.lanes == 1 ? "" : "s",
             answer.channels, answer.channels == 1 ? "" : "s", answer.chunks,
             answer.chunks == 1 ? "" : "s",
             on.blocks > 0 ? fmt::format(", {} thread blocks a rank", on.blocks) : "");
  fmt::print("ports    {} in peer memory, {} in host memory, {} to the network; {} hop{}\n",
             facts.peer_memory, facts.host_memory, facts.network, answer.hops,
             answer.hops == 1 ? "" : "s");
  fmt::print("NICs     {}\n", list(facts.nics));
  if (facts.network > 0) fmt::print("network  {:.0f} bytes between hosts\n", answer.network_bytes);
  fmt::print("time     {}, the bound is {}\n",
             answer.time_us > 0 ? duration(answer.time_us) : "unknown", duration(answer.bound_us));
  if (on.blocks > 0 && links_hosts(on.machine)) fmt::print("note     {}\n", kUnusedLinks);
  fmt::print("machine  {}\ncosts    {}\n{}", table.machine, table.origin,
             describe_options(table, kind, bytes, on.chooser.option_of(answer.choice, kind)));
}

void print_sizes(const GpuExplanation& on, CollectiveKind kind) {
  for (const uint64_t bytes : {1u << 10, 32u << 10, 1u << 20, 32u << 20, 1u << 30}) {
    const Answer answer = answer_for(on, collective_on(on, kind), bytes);
    fmt::print("{:14} {:>5} {:26} {:10} {:>3} lanes  {} + {} + {} ports  {}; the bound is {}\n",
               name(kind), size_text(bytes), answer.choice.name, name_of(answer.choice.path),
               answer.lanes, answer.facts.peer_memory, answer.facts.host_memory,
               answer.facts.network, answer.time_us > 0 ? duration(answer.time_us) : "unknown",
               duration(answer.bound_us));
  }
}

void print_notes(const GpuExplanation& on) {
  if (links_hosts(on.machine)) fmt::print("note: {}\n", kUnusedLinks);
}

}  // namespace weft
