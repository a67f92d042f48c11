// Structure checks of a Schedule, and the numbering that the proofs run on.
#include "src/schedule/schedule_graph.h"

#include <algorithm>
#include <unordered_map>

#include "src/base/error.h"

namespace weft {

std::string describe(const StepId& id) {
  return fmt::format("rank {} lane {} step {}", id.rank, id.lane, id.step);
}

std::string describe(Buffer buffer, int index) {
  constexpr const char* kLetters[] = {"input", "output", "scratch"};
  return fmt::format("{} chunk {}", kLetters[static_cast<int>(buffer)], index);
}

ScheduleGraph::ScheduleGraph(const Schedule& s, bool in_place_) : schedule(s), in_place(in_place_) {
  const int nranks = s.collective.nranks;
  if (nranks < 1) fail(ncclInvalidUsage, "schedule {}: {} ranks", s.name, nranks);
  if (s.chunks < 1) fail(ncclInvalidUsage, "schedule {}: {} chunks per block", s.name, s.chunks);
  if (static_cast<int>(s.ranks.size()) != nranks)
    fail(ncclInvalidUsage, "schedule {}: has parts for {} ranks, its collective has {}", s.name,
         s.ranks.size(), nranks);
  fifo_index_.resize(static_cast<size_t>(nranks));
  for (int r = 0; r < nranks; r++) {
    first_lane.push_back(static_cast<int32_t>(lanes.size()));
    const auto& rank_lanes = s.ranks[static_cast<size_t>(r)].lanes;
    for (size_t l = 0; l < rank_lanes.size(); l++) {
      lanes.push_back({r, static_cast<int32_t>(l), static_cast<int32_t>(steps.size()),
                       static_cast<int32_t>(rank_lanes[l].steps.size())});
      for (const Step& step : rank_lanes[l].steps) {
        steps.push_back(&step);
        step_lane.push_back(static_cast<int32_t>(lanes.size()) - 1);
      }
    }
  }
  first_lane.push_back(static_cast<int32_t>(lanes.size()));

  for (size_t n = 0; n < steps.size(); n++) {
    const Step& step = *steps[n];
    const StepId at = id(static_cast<int32_t>(n));
    const int32_t lane = step_lane[n];
    const auto& rank_schedule = s.ranks[static_cast<size_t>(at.rank)];
    if (step.count < 0) fail(ncclInvalidUsage, "{}: count {}", describe(at), step.count);
    if (step.count == 0) check_token(at, step);
    if (step.count > 0 && step.from.empty() != step.to.empty())
      fail(ncclInvalidUsage, "{}: has {} sources but {} destinations", describe(at),
           step.from.size(), step.to.size());
    if (step.from.size() > 64)
      fail(ncclInvalidUsage, "{}: {} sources, at most 64 fit in one step", describe(at),
           step.from.size());
    if (step.from.size() > 1 && step.to.size() > 64)
      fail(ncclInvalidUsage, "{}: reduces into {} destinations, at most 64 fit in one step",
           describe(at), step.to.size());
    first_operand.push_back(static_cast<int32_t>(operand_fifo.size()));
    for (int direction = 0; direction < 2; direction++) {
      for (const Operand& operand : direction == 0 ? step.from : step.to) {
        if (operand.kind != Operand::Kind::kPeer) {
          check_memory(at, operand, step.count);
          operand_fifo.push_back(-1);
          continue;
        }
        const int peer = operand.index, channel = operand.channel;
        if (peer < 0 || peer >= nranks || (peer == at.rank))
          fail(ncclInvalidUsage, "{}: peer {} of {} ranks", describe(at), peer, nranks);
        const int32_t number = direction == 0 ? fifo_number(peer, at.rank, channel)
                                              : fifo_number(at.rank, peer, channel);
        Fifo& fifo = fifos[static_cast<size_t>(number)];
        int32_t& owner = direction == 0 ? fifo.consumer_lane : fifo.producer_lane;
        if (owner >= 0 && owner != lane)
          fail(ncclInvalidUsage, "{}: lane {} {} peer {} on channel {} already", describe(at),
               lanes[static_cast<size_t>(owner)].lane,
               direction == 0 ? "receives from" : "sends to", peer, channel);
        owner = lane;
        int32_t& last = direction == 0 ? fifo.last_received : fifo.last_sent;
        if (last == static_cast<int32_t>(n))
          fail(ncclInvalidUsage, "{}: {} peer {} on channel {} twice", describe(at),
               direction == 0 ? "receives from" : "sends to", peer, channel);
        last = static_cast<int32_t>(n);
        operand_fifo.push_back(number);
      }
    }
    if (step.count > 1) check_overlap(at, step);
    for (const Dependency& d : step.after)
      if (d.lane < 0 || d.lane >= static_cast<int>(rank_schedule.lanes.size()) || d.step < 0 ||
          d.step >= static_cast<int>(rank_schedule.lanes[static_cast<size_t>(d.lane)].steps.size()))
        fail(ncclInvalidUsage, "{}: depends on lane {} step {}, which does not exist", describe(at),
             d.lane, d.step);
  }
}

void ScheduleGraph::check_token(const StepId& at, const Step& step) const {
  const auto is_peer = [](const Operand& o) { return o.kind == Operand::Kind::kPeer; };
  if (step.from.empty() == step.to.empty() ||
      !std::all_of(step.from.begin(), step.from.end(), is_peer) ||
      !std::all_of(step.to.begin(), step.to.end(), is_peer))
    fail(ncclInvalidUsage,
         "{}: a step of count 0 sends tokens to peers or receives them from peers", describe(at));
}

void ScheduleGraph::check_memory(const StepId& at, const Operand& operand, int count) const {
  const int owner = memory_owner(at.rank, operand);
  if (owner < 0 || owner >= schedule.collective.nranks ||
      (operand.kind == Operand::Kind::kRemote && owner == at.rank))
    fail(ncclInvalidUsage, "{}: reaches into rank {}", describe(at), owner);
  const int size = operand.buffer == Buffer::kInput ? input_chunks(owner)
                   : operand.buffer == Buffer::kOutput
                       ? output_chunks(owner)
                       : schedule.ranks[static_cast<size_t>(owner)].scratch_chunks;
  if (operand.index < 0 || operand.index > size - count)
    fail(ncclInvalidUsage, "{}: {} (count {}) is outside a buffer of {} chunks", describe(at),
         describe(operand.buffer, operand.index), count, size);
}

// Executors go through a step chunk by chunk, so a destination may be another operand's place only
// chunk for chunk.
void ScheduleGraph::check_overlap(const StepId& at, const Step& step) const {
  constexpr int kSeveral = -1;
  std::unordered_map<int64_t, int> read, written;  // which chunk of the step is at a place
  const auto place = [&](const Operand& operand, int c) {
    const int owner = memory_owner(at.rank, operand);
    return (static_cast<int64_t>(owner) << 32) | location(owner, operand.buffer, operand.index + c);
  };
  for (const Operand& from : step.from)
    for (int c = 0; c < step.count && from.kind != Operand::Kind::kPeer; c++) {
      const auto [it, inserted] = read.try_emplace(place(from, c), c);
      if (!inserted && it->second != c) it->second = kSeveral;
    }
  for (const Operand& to : step.to)
    for (int c = 0; c < step.count && to.kind != Operand::Kind::kPeer; c++) {
      const auto source = read.find(place(to, c));
      const auto [other, inserted] = written.try_emplace(place(to, c), c);
      if ((source != read.end() && source->second != c) || (!inserted && other->second != c))
        fail(ncclInvalidUsage, "{}: {} (count {}) overlaps another of its operands partly",
             describe(at), describe(to.buffer, to.index), step.count);
    }
}

int32_t ScheduleGraph::fifo_number(int source, int destination, int channel) {
  auto& index = fifo_index_[static_cast<size_t>(source)];
  const int64_t key = (static_cast<int64_t>(channel) << 32) | static_cast<int64_t>(destination);
  auto it = std::lower_bound(index.begin(), index.end(), std::make_pair(key, int32_t{-1}));
  if (it != index.end() && it->first == key) return it->second;
  const auto number = static_cast<int32_t>(fifos.size());
  fifos.push_back({source, destination, channel, -1, -1});
  index.insert(it, {key, number});
  return number;
}

int32_t ScheduleGraph::location(int rank, Buffer buffer, int index) const {
  const int inputs = input_chunks(rank), outputs = output_chunks(rank);
  if (buffer == Buffer::kScratch) return inputs + outputs + index;
  if (buffer == Buffer::kOutput) return inputs + index;
  if (!in_place || outputs == 0) return index;
  // In place an input chunk that lies in the output takes the output's number. The other way round
  // (reduce_scatter, scatter) the output lies in the input: those input chunks take the output's
  // numbers too.
  const Collective::Overlap overlap = schedule.collective.overlap(rank, schedule.chunks);
  const int as_output = index + overlap.input_at - overlap.output_at;
  return as_output >= 0 && as_output < outputs ? inputs + as_output : index;
}

int32_t ScheduleGraph::locations(int rank) const {
  return input_chunks(rank) + output_chunks(rank) +
         schedule.ranks[static_cast<size_t>(rank)].scratch_chunks;
}

}  // namespace weft
