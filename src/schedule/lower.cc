// Flattens one rank's lanes and numbers the FIFO ends it uses.
#include "src/schedule/lower.h"

#include <algorithm>

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
  return {static_cast<ProgramBuffer>(operand.buffer), static_cast<int16_t>(operand.owner), operand.index};
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
        program.partial_sums |= step.from.size() > 1 && static_cast<int>(step.from.size()) < schedule.collective.nranks;
      }
  for (size_t l = 0; l < mine.lanes.size(); l++) {
    const Lane& lane = mine.lanes[l];
    program.lanes.push_back(
        {static_cast<uint32_t>(program.steps.size()), static_cast<uint32_t>(lane.steps.size())});
    for (size_t n = 0; n < lane.steps.size(); n++) {
      const Step& step = lane.steps[n];
      const StepFacts& facts = verified.facts(rank, static_cast<int>(l), static_cast<int>(n));
      ProgramStep out;
      out.raw_sources = facts.raw_sources;
      out.completes = facts.completes;
      out.lendable = facts.lendable;
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
