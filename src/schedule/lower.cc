// Flattens one rank's lanes and numbers the FIFO ends it uses.
#include "src/schedule/lower.h"

#include <algorithm>
#include <set>

#include "src/schedule/schedule_graph.h"

namespace weft {
namespace {

int32_t port_number(std::vector<ProgramPort>& ports, int peer, int channel) {
  const auto it = std::find_if(ports.begin(), ports.end(), [&](const ProgramPort& port) {
    return port.peer == peer && port.channel == channel;
  });
  if (it != ports.end()) return static_cast<int32_t>(it - ports.begin());
  ports.push_back({peer, channel});
  return static_cast<int32_t>(ports.size()) - 1;
}

ProgramOperand lower_operand(const Operand& operand, std::vector<ProgramPort>& ports) {
  if (operand.kind == Operand::Kind::kPeer)
    return {ProgramBuffer::kPeer, -1, port_number(ports, operand.index, operand.channel)};
  return {static_cast<ProgramBuffer>(operand.buffer), static_cast<int16_t>(operand.owner),
          operand.index};
}

// Whether a step is independent of the steps [first, n) of its lane.
bool independent(const ScheduleGraph& graph, int rank, const Lane& lane, size_t first, size_t n) {
  const auto places = [&](const Step& step, const std::vector<Operand>& operands,
                          std::set<std::pair<int, int32_t>>& out) {
    for (const Operand& operand : operands) {
      if (operand.kind == Operand::Kind::kPeer) return false;
      const int owner = ScheduleGraph::memory_owner(rank, operand);
      for (int c = 0; c < step.count; c++)
        out.emplace(owner, graph.location(owner, operand.buffer, operand.index + c));
    }
    return true;
  };
  std::set<std::pair<int, int32_t>> read, written;
  for (size_t i = first; i < n; i++)
    if (lane.steps[i].count == 0 || !places(lane.steps[i], lane.steps[i].from, read) ||
        !places(lane.steps[i], lane.steps[i].to, written))
      return false;
  std::set<std::pair<int, int32_t>> reads, writes;
  const Step& step = lane.steps[n];
  if (step.count == 0 || !step.after.empty() || !places(step, step.from, reads) ||
      !places(step, step.to, writes))
    return false;
  const auto meets = [](const auto& a, const auto& b) {
    return std::any_of(a.begin(), a.end(), [&](const auto& place) { return b.count(place) != 0; });
  };
  return !meets(reads, written) && !meets(writes, written) && !meets(writes, read);
}

}  // namespace

Program lower(const VerifiedSchedule& verified, int rank) {
  const Schedule& schedule = verified.schedule();
  const RankSchedule& mine = schedule.ranks[static_cast<size_t>(rank)];
  Program program;
  program.collective = schedule.collective;
  program.rank = rank;
  program.chunks = schedule.chunks;
  program.scratch_chunks = mine.scratch_chunks;
  program.uniform_only = verified.uniform_only();
  // Every rank cuts slices alike, so the largest step of any rank counts.
  for (const RankSchedule& part : schedule.ranks)
    for (const Lane& lane : part.lanes)
      for (const Step& step : lane.steps) {
        program.max_step_chunks = std::max(program.max_step_chunks, step.count);
        program.partial_sums |=
            step.from.size() > 1 && static_cast<int>(step.from.size()) < schedule.collective.nranks;
      }
  const ScheduleGraph& graph = verified.graph();
  const std::vector<bool> lendable = verified.lendable(rank);
  for (size_t l = 0; l < mine.lanes.size(); l++) {
    const Lane& lane = mine.lanes[l];
    size_t run = 0;  // where the present run of independent steps began
    program.lanes.push_back(
        {static_cast<uint32_t>(program.steps.size()), static_cast<uint32_t>(lane.steps.size())});
    for (size_t n = 0; n < lane.steps.size(); n++) {
      const Step& step = lane.steps[n];
      const StepFacts& facts = verified.facts(rank, static_cast<int>(l), static_cast<int>(n));
      ProgramStep out;
      out.raw_sources = facts.raw_sources;
      out.completes = facts.completes;
      out.lendable = lendable[program.steps.size()];
      // Only executors that reach into memory make use of it.
      out.joins = program.reaches_memory && n > 0 && independent(graph, rank, lane, run, n);
      if (!out.joins) run = n;
      out.count = step.count;
      program.reaches_memory |= step.count == 0;
      for (const Operand& o : step.from) program.reaches_memory |= o.kind == Operand::Kind::kRemote;
      for (const Operand& o : step.to) program.reaches_memory |= o.kind == Operand::Kind::kRemote;
      out.sub = facts.piece % schedule.chunks;
      out.sources = static_cast<uint16_t>(step.from.size());
      out.destinations = static_cast<uint16_t>(step.to.size());
      out.dependencies = static_cast<uint16_t>(step.after.size());
      out.first_operand = static_cast<uint32_t>(program.operands.size());
      out.first_dependency = static_cast<uint32_t>(program.dependencies.size());
      for (const Operand& operand : step.from)
        program.operands.push_back(lower_operand(operand, program.receives));
      for (const Operand& operand : step.to)
        program.operands.push_back(lower_operand(operand, program.sends));
      for (const Dependency& d : step.after)
        program.dependencies.push_back(
            {static_cast<uint32_t>(d.lane), static_cast<uint32_t>(d.step)});
      program.steps.push_back(out);
    }
  }
  return program;
}

}  // namespace weft
