// Flattens one rank's lanes and numbers the FIFO ends that it uses.
#include "src/schedule/lower.h"

#include <algorithm>
#include <limits>
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
    return {ProgramBuffer::kPeer, operand.codec, -1,
            port_number(ports, operand.index, operand.channel)};
  return {static_cast<ProgramBuffer>(operand.buffer), operand.codec,
          static_cast<int16_t>(operand.owner), operand.index};
}

// A run of steps that may run in parallel, and the memory and ports it touches so far.
class ParallelSteps {
 public:
  ParallelSteps(const ScheduleGraph& graph, int rank) : graph_(graph), rank_(rank) {}

  void begin(const Step& step) {
    read_.clear();
    written_.clear();
    sends_ = receives_ = false;
    open_ = step.count > 0 && add(step);
  }

  // Adds the step if it may join the run; says whether it did.
  bool join(const Step& step) { return open_ && step.count > 0 && step.after.empty() && add(step); }

 private:
  // Memory by owner and location. Ports have keys below the owners. Use in either direction counts
  // as a write to the port.
  using Places = std::set<std::pair<int, int32_t>>;

  bool add(const Step& step) {
    Places read, written;
    bool sends = sends_, receives = receives_;
    places(step, step.from, 0, read, written, receives);
    places(step, step.to, 1, written, written, sends);
    // The thread that waits for a message must not also have to send one.
    if ((sends && receives) || meets(read, written_) || meets(written, written_) ||
        meets(written, read_))
      return false;
    read_.merge(read);
    written_.merge(written);
    sends_ = sends;
    receives_ = receives;
    return true;
  }

  void places(const Step& step, const std::vector<Operand>& operands, int direction, Places& memory,
              Places& ports, bool& peers) const {
    for (const Operand& operand : operands) {
      if (operand.kind == Operand::Kind::kPeer) {
        peers = true;
        ports.emplace(-1 - operand.index, operand.channel * 2 + direction);
        continue;
      }
      const int owner = ScheduleGraph::memory_owner(rank_, operand);
      for (int c = 0; c < step.count; c++)
        memory.emplace(owner, graph_.location(owner, operand.buffer, operand.index + c));
    }
  }
  static bool meets(const Places& a, const Places& b) {
    return std::any_of(a.begin(), a.end(), [&](const auto& place) { return b.count(place) != 0; });
  }

  const ScheduleGraph& graph_;
  const int rank_;
  Places read_, written_;
  bool sends_ = false, receives_ = false, open_ = false;
};

void mark_runs(const ScheduleGraph& graph, int rank, const Lane& lane, ProgramStep* steps) {
  ParallelSteps run(graph, rank);
  size_t first = 0;
  for (size_t n = 0; n < lane.steps.size(); n++) {
    if (n > 0 && steps[first].run < std::numeric_limits<uint16_t>::max() &&
        run.join(lane.steps[n])) {
      steps[first].run++;
      continue;
    }
    first = n;
    run.begin(lane.steps[n]);
  }
}

// See Program::in_step.
bool in_step(const Schedule& schedule) {
  const int n = schedule.collective.nranks;
  if (n == 1 || schedule.chunks % n != 0 || !schedule.codecs.empty()) return false;
  const auto others = static_cast<size_t>(n - 1);
  const auto alike = [&](const Operand& first, const Operand& other, int rank, Buffer buffer) {
    return first.kind != Operand::Kind::kPeer && other.kind != Operand::Kind::kPeer &&
           first.buffer == buffer && other.buffer == buffer && first.index % n == 0 &&
           other.index == first.index + rank &&
           ScheduleGraph::memory_owner(0, first) == ScheduleGraph::memory_owner(rank, other);
  };
  const auto all_alike = [&](const std::vector<Operand>& first, const std::vector<Operand>& other,
                             int rank, Buffer buffer) {
    return std::equal(
        first.begin(), first.end(), other.begin(), other.end(),
        [&](const Operand& a, const Operand& b) { return alike(a, b, rank, buffer); });
  };
  for (int r = 0; r < n; r++) {
    const RankSchedule& mine = schedule.ranks[static_cast<size_t>(r)];
    if (mine.lanes.size() != 1) return false;
    const std::vector<Step>&first = schedule.ranks[0].lanes[0].steps, &steps = mine.lanes[0].steps;
    if (steps.size() != first.size()) return false;
    int moves = 0;  // times that the steps begin to move data
    for (size_t k = 0; k < steps.size(); k++) {
      if (steps[k].count != first[k].count || steps[k].count > 1) return false;
      if (steps[k].count == 0) continue;
      // All ranks meet before and after. Single copies run in parallel anyway.
      if (k == 0 || k + 2 >= steps.size() || steps[k].from.size() * steps[k].to.size() == 1)
        return false;
      if (steps[k - 1].count == 0) {
        moves++;
        if (steps[k - 1].from.size() != others) return false;
      }
      if (steps[k + 1].count == 0 &&
          (steps[k + 1].to.size() != others || steps[k + 2].from.size() != others))
        return false;
      if (!all_alike(first[k].from, steps[k].from, r, Buffer::kInput) ||
          !all_alike(first[k].to, steps[k].to, r, Buffer::kOutput))
        return false;
    }
    if (moves != 1) return false;
  }
  return true;
}

bool is_coded(const Step& step) {
  const auto coded = [](const Operand& operand) { return operand.codec != 0; };
  return std::any_of(step.from.begin(), step.from.end(), coded) ||
         std::any_of(step.to.begin(), step.to.end(), coded);
}

void mark_only_senders(Program& program) {
  std::vector<uint32_t> uses(program.sends.size());
  const auto each_port = [&](const ProgramStep& step, const auto& use) {
    for (uint32_t i = step.sources; i < uint32_t{step.sources} + step.destinations; i++) {
      const ProgramOperand& to = program.operands[step.first_operand + i];
      if (to.buffer == ProgramBuffer::kPeer) use(uses[static_cast<size_t>(to.index)]);
    }
  };
  for (const ProgramStep& step : program.steps) each_port(step, [](uint32_t& n) { n++; });
  for (ProgramStep& step : program.steps) {
    step.only_sender = true;
    each_port(step, [&](uint32_t& n) { step.only_sender = step.only_sender && n == 1; });
  }
}

}  // namespace

Program lower(const VerifiedSchedule& verified, int rank) {
  const Schedule& schedule = verified.schedule();
  const RankSchedule& mine = schedule.ranks[static_cast<size_t>(rank)];
  Program program;
  program.collective = schedule.collective;
  program.rank = rank;
  program.chunks = schedule.chunks;
  program.uniform_only = verified.uniform_only();
  program.in_step = in_step(schedule);
  program.codecs = schedule.codecs;
  // Every rank divides slices alike, so the largest step and scratch of any rank count.
  for (const RankSchedule& part : schedule.ranks) {
    program.scratch_chunks = std::max(program.scratch_chunks, part.scratch_chunks);
    for (const Lane& lane : part.lanes)
      for (const Step& step : lane.steps) {
        program.max_step_chunks = std::max(program.max_step_chunks, step.count);
        program.partial_sums |=
            step.from.size() > 1 && static_cast<int>(step.from.size()) < schedule.collective.nranks;
      }
  }
  const ScheduleGraph& graph = verified.graph();
  const std::vector<bool> lendable = verified.lendable(rank);
  for (size_t l = 0; l < mine.lanes.size(); l++) {
    const Lane& lane = mine.lanes[l];
    const size_t first = program.steps.size();
    program.lanes.push_back(
        {static_cast<uint32_t>(program.steps.size()), static_cast<uint32_t>(lane.steps.size())});
    for (size_t n = 0; n < lane.steps.size(); n++) {
      const Step& step = lane.steps[n];
      const StepFacts& facts = verified.facts(rank, static_cast<int>(l), static_cast<int>(n));
      ProgramStep out;
      out.raw_sources = facts.raw_sources;
      out.completes = facts.completes;
      out.coded = is_coded(step);
      // Coded data is nowhere in memory, so nobody can read it in place.
      out.lendable = lendable[program.steps.size()] && !out.coded;
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
    mark_runs(graph, rank, lane, program.steps.data() + first);
  }
  mark_only_senders(program);
  return program;
}

}  // namespace weft
