// Structure checks of a Schedule, and the numbering that the proofs use.
#include "src/schedule/schedule_graph.h"

#include <algorithm>
#include <limits>

#include "src/base/error.h"

namespace weft {
namespace {

// Limits on the cost of a proof. An all-to-all of a thousand ranks stays far below.
constexpr int64_t kMostPlaces = int64_t{1} << 26;  // chunks of memory, all ranks together
constexpr int64_t kMostMoves = int64_t{1} << 28;   // chunks that steps touch
constexpr int64_t kMostSteps = int64_t{1} << 26;
constexpr size_t kMostDependencies = 65535;  // of a step; a Program holds no more

}  // namespace

std::string describe(const StepId& id) {
  return fmt::format("rank {} lane {} step {}", id.rank, id.lane, id.step);
}

std::string describe(Buffer buffer, int index) {
  constexpr const char* kLetters[] = {"input", "output", "scratch"};
  return fmt::format("{} chunk {}", kLetters[static_cast<int>(buffer)], index);
}

std::string ScheduleGraph::describe_chunk(int32_t number, int c) const {
  const Step& step = *steps[static_cast<size_t>(number)];
  for (const auto* operands : {&step.to, &step.from})
    for (const Operand& operand : *operands)
      if (operand.kind == Operand::Kind::kLocal)
        return fmt::format("{} ({})", describe(id(number)),
                           describe(operand.buffer, operand.index + c));
  return describe(id(number));
}

std::string ScheduleGraph::describe_place(int32_t place) const {
  size_t rank = layouts_.size() - 1;
  while (layouts_[rank].first > place) rank--;
  const Layout& at = layouts_[rank];
  int32_t index = place - at.first;
  Buffer buffer = Buffer::kInput;
  if (index >= at.inputs) {
    index -= at.inputs;
    buffer = index < at.outputs ? Buffer::kOutput : Buffer::kScratch;
    if (buffer == Buffer::kScratch) index -= at.outputs;
  }
  return fmt::format("{} of rank {}", describe(buffer, index), rank);
}

ScheduleGraph::ScheduleGraph(const Schedule& s, bool in_place_) : schedule(s), in_place(in_place_) {
  const int nranks = s.collective.nranks;
  if (nranks < 1) fail(ncclInvalidUsage, "schedule {}: {} ranks", s.name, nranks);
  if (s.chunks < 1) fail(ncclInvalidUsage, "schedule {}: {} chunks per block", s.name, s.chunks);
  if (s.cpu_nodes < 0 || s.cpu_nodes > kMostCpuNodes)
    fail(ncclInvalidUsage, "schedule {}: {} CPU nodes, at most {} are possible", s.name,
         s.cpu_nodes, kMostCpuNodes);
  if (static_cast<int64_t>(s.ranks.size()) != int64_t{nranks} + s.cpu_nodes)
    fail(ncclInvalidUsage, "schedule {}: has parts for {} ranks, its collective has {}{}", s.name,
         s.ranks.size(), nranks,
         s.cpu_nodes > 0 ? fmt::format(" and {} CPU nodes", s.cpu_nodes) : "");
  if (s.collective.rooted() && (s.collective.root < 0 || s.collective.root >= nranks))
    fail(ncclInvalidUsage, "schedule {}: root {} of {} ranks", s.name, s.collective.root, nranks);
  if (s.collective.kind == CollectiveKind::kSendRecv && nranks != 2)
    fail(ncclInvalidUsage, "schedule {}: sendrecv is between 2 ranks, not {}", s.name, nranks);
  for (size_t i = 0; i < s.codecs.size(); i++)
    if (const std::string why = fault_of(s.codecs[i]); !why.empty())
      fail(ncclInvalidUsage, "schedule {}: codec {}: {}", s.name, i + 1, why);
  lay_out();
  number_steps();
  operand_fifo.reserve(2 * steps.size());
  operand_message.reserve(2 * steps.size());
  first_operand.reserve(steps.size());
  fifo_index_.reserve(
      std::min(steps.size(), static_cast<size_t>(nranks) * static_cast<size_t>(nranks)));
  for (size_t n = 0; n < steps.size(); n++) check_step(static_cast<int32_t>(n));
  match_messages();
  fifo_index_ = {};
}

void ScheduleGraph::lay_out() {
  const Collective& c = schedule.collective;
  int64_t places = 0;
  // Pieces are numbered too; an all-to-all has one per pair of ranks.
  const int64_t pieces = int64_t{c.nranks} * c.nranks * schedule.chunks;
  for (int r = 0; r < c.nranks + schedule.cpu_nodes; r++) {
    const int64_t inputs = int64_t{c.input_blocks(r)} * schedule.chunks;
    const int64_t outputs = int64_t{c.output_blocks(r)} * schedule.chunks;
    const int32_t scratch = schedule.ranks[static_cast<size_t>(r)].scratch_chunks;
    if (scratch < 0) fail(ncclInvalidUsage, "rank {}: {} scratch chunks", r, scratch);
    const int64_t first = places;
    places += inputs + outputs + scratch;
    if (places > kMostPlaces ||
        (c.kind == CollectiveKind::kAllToAll && pieces > std::numeric_limits<int32_t>::max()))
      fail(ncclInvalidUsage, "schedule {}: its buffers have more than {} chunks, too many to prove",
           schedule.name, kMostPlaces);
    const Collective::Overlap overlap = c.overlap(r, schedule.chunks);
    layouts_.push_back({static_cast<int32_t>(first), static_cast<int32_t>(inputs),
                        static_cast<int32_t>(outputs), overlap.input_at - overlap.output_at});
  }
  places_ = static_cast<int32_t>(places);
}

void ScheduleGraph::number_steps() {
  int64_t count = 0;
  for (const RankSchedule& rank : schedule.ranks)
    for (const Lane& lane : rank.lanes) count += static_cast<int64_t>(lane.steps.size());
  if (count > kMostSteps)
    fail(ncclInvalidUsage, "schedule {}: {} steps, more than {} cannot be proved", schedule.name,
         count, kMostSteps);
  steps.reserve(static_cast<size_t>(count));
  step_lane.reserve(static_cast<size_t>(count));
  for (size_t r = 0; r < schedule.ranks.size(); r++) {
    first_lane.push_back(static_cast<int32_t>(lanes.size()));
    const auto& rank_lanes = schedule.ranks[r].lanes;
    for (size_t l = 0; l < rank_lanes.size(); l++) {
      lanes.push_back({static_cast<int32_t>(r), static_cast<int32_t>(l),
                       static_cast<int32_t>(steps.size()),
                       static_cast<int32_t>(rank_lanes[l].steps.size())});
      for (const Step& step : rank_lanes[l].steps) {
        steps.push_back(&step);
        step_lane.push_back(static_cast<int32_t>(lanes.size()) - 1);
      }
    }
  }
  first_lane.push_back(static_cast<int32_t>(lanes.size()));
}

void ScheduleGraph::check_step(int32_t number) {
  const Step& step = *steps[static_cast<size_t>(number)];
  const StepId at = id(number);
  const auto& rank_lanes = schedule.ranks[static_cast<size_t>(at.rank)].lanes;
  if (step.count < 0) fail(ncclInvalidUsage, "{}: count {}", describe(at), step.count);
  if (step.count == 0) check_token(at, step);
  if (step.count > 0 && step.from.empty() != step.to.empty())
    fail(ncclInvalidUsage, "{}: has {} sources but {} destinations", describe(at), step.from.size(),
         step.to.size());
  if (step.from.size() > 64)
    fail(ncclInvalidUsage, "{}: {} sources, at most 64 fit in one step", describe(at),
         step.from.size());
  if (step.from.size() > 1 && step.to.size() > 64)
    fail(ncclInvalidUsage, "{}: reduces into {} destinations, at most 64 fit in one step",
         describe(at), step.to.size());
  const auto coded = [](const Operand& operand) { return operand.codec != 0; };
  if (step.to.size() > 64 && (std::any_of(step.from.begin(), step.from.end(), coded) ||
                              std::any_of(step.to.begin(), step.to.end(), coded)))
    fail(ncclInvalidUsage, "{}: has codecs and {} destinations, at most 64 fit in such a step",
         describe(at), step.to.size());
  if (step.from.size() > 1 && step.count > 0 && !schedule.collective.reduces())
    fail(ncclInvalidUsage, "{}: reduces, but {} does not", describe(at),
         name(schedule.collective.kind));
  moves_ += int64_t{step.count} * static_cast<int64_t>(step.from.size() + step.to.size());
  if (moves_ > kMostMoves)
    fail(ncclInvalidUsage, "{}: until here more than {} chunks are moved, too many to prove",
         describe(at), kMostMoves);
  first_operand.push_back(static_cast<int32_t>(operand_fifo.size()));
  for (const bool sends : {false, true}) {
    for (const Operand& operand : sends ? step.to : step.from) {
      if (operand.codec > (step.count > 0 ? schedule.codecs.size() : 0))
        fail(ncclInvalidUsage, "{}: codec {} of {}", describe(at), operand.codec,
             step.count > 0 ? schedule.codecs.size() : 0);
      if (operand.kind == Operand::Kind::kPeer) {
        add_peer(number, operand, sends);
      } else {
        check_memory(at, operand, step.count, sends);
        check_memory_codec(at, operand);
        remote_ = remote_ || operand.kind == Operand::Kind::kRemote;
        operand_fifo.push_back(-1);
        operand_message.push_back(-1);
      }
    }
  }
  if (step.count > 1) check_overlap(at, step);
  if (step.after.size() > kMostDependencies)
    fail(ncclInvalidUsage, "{}: depends on {} steps, at most {} fit in one step", describe(at),
         step.after.size(), kMostDependencies);
  for (const Dependency& d : step.after)
    if (d.lane < 0 || d.lane >= static_cast<int>(rank_lanes.size()) || d.step < 0 ||
        d.step >= static_cast<int>(rank_lanes[static_cast<size_t>(d.lane)].steps.size()))
      fail(ncclInvalidUsage, "{}: depends on lane {} step {}, which does not exist", describe(at),
           d.lane, d.step);
}

void ScheduleGraph::add_peer(int32_t number, const Operand& operand, bool sends) {
  const StepId at = id(number);
  const int peer = operand.index, channel = operand.channel;
  if (peer < 0 || peer >= static_cast<int>(schedule.ranks.size()) || peer == at.rank)
    fail(ncclInvalidUsage, "{}: peer {} of {} ranks", describe(at), peer, schedule.ranks.size());
  const int32_t fifo_at =
      sends ? fifo_number(at.rank, peer, channel) : fifo_number(peer, at.rank, channel);
  Fifo& fifo = fifos[static_cast<size_t>(fifo_at)];
  const int32_t lane = step_lane[static_cast<size_t>(number)];
  int32_t& owner = sends ? fifo.producer_lane : fifo.consumer_lane;
  if (owner >= 0 && owner != lane)
    fail(ncclInvalidUsage, "{}: lane {} {} peer {} on channel {} already", describe(at),
         lanes[static_cast<size_t>(owner)].lane, sends ? "sends to" : "receives from", peer,
         channel);
  owner = lane;
  int32_t& last = sends ? fifo.last_sent : fifo.last_received;
  if (last == number)
    fail(ncclInvalidUsage, "{}: {} peer {} on channel {} twice", describe(at),
         sends ? "sends to" : "receives from", peer, channel);
  last = number;
  fifo.most_chunks = std::max(fifo.most_chunks, steps[static_cast<size_t>(number)]->count);
  operand_fifo.push_back(fifo_at);
  operand_message.push_back(sends ? fifo.sent++ : fifo.received++);
}

void ScheduleGraph::match_messages() {
  int32_t messages = 0;
  for (Fifo& fifo : fifos) {
    fifo.first_message = messages;
    messages += fifo.messages();
  }
  senders.assign(static_cast<size_t>(messages), -1);
  receivers.assign(static_cast<size_t>(messages), -1);
  for (size_t n = 0; n < steps.size(); n++) {
    const auto first = static_cast<size_t>(first_operand[n]);
    const size_t sources = steps[n]->from.size(), all = sources + steps[n]->to.size();
    for (size_t i = 0; i < all; i++) {
      const int32_t fifo = operand_fifo[first + i];
      if (fifo < 0) continue;
      (i < sources ? receivers : senders)[static_cast<size_t>(
          fifos[static_cast<size_t>(fifo)].first_message + operand_message[first + i])] =
          static_cast<int32_t>(n);
    }
  }
  for (size_t m = 0; m < senders.size(); m++) {
    if (senders[m] < 0 || receivers[m] < 0) continue;
    const int sent = steps[static_cast<size_t>(senders[m])]->count;
    const int expected = steps[static_cast<size_t>(receivers[m])]->count;
    if (sent != expected)
      fail(ncclInvalidUsage, "{} receives {} chunks, but {} sent {}", describe(id(receivers[m])),
           expected, describe(id(senders[m])), sent);
  }
  if (!schedule.codecs.empty()) match_codecs();
  for (const Fifo& fifo : fifos)
    if (fifo.sent > fifo.received)
      fail(ncclInvalidUsage, "{} sends to rank {}, which never receives it",
           describe_chunk(senders[static_cast<size_t>(fifo.first_message + fifo.received)], 0),
           fifo.destination);
}

// Both ends of a message name the same codec.
void ScheduleGraph::match_codecs() const {
  std::vector<uint8_t> sent(senders.size());
  for (const bool receives : {false, true})
    for (size_t n = 0; n < steps.size(); n++) {
      const auto& operands = receives ? steps[n]->from : steps[n]->to;
      const auto first =
          static_cast<size_t>(first_operand[n]) + (receives ? 0 : steps[n]->from.size());
      for (size_t i = 0; i < operands.size(); i++) {
        const int32_t fifo = operand_fifo[first + i];
        if (fifo < 0) continue;
        uint8_t& codec = sent[static_cast<size_t>(fifos[static_cast<size_t>(fifo)].first_message +
                                                  operand_message[first + i])];
        if (!receives) codec = operands[i].codec;
        if (codec != operands[i].codec)
          fail(ncclInvalidUsage, "{} receives with codec {} what rank {} sent with codec {}",
               describe(id(static_cast<int32_t>(n))), operands[i].codec, operands[i].index, codec);
      }
    }
}

void ScheduleGraph::check_memory_codec(const StepId& at, const Operand& operand) const {
  if (operand.codec == 0) return;
  if (operand.kind == Operand::Kind::kRemote)
    fail(ncclInvalidUsage, "{}: a chunk of peer memory has a codec", describe(at));
  if (schedule.codecs[operand.codec - 1u].kind == Codec::kWiden)
    fail(ncclInvalidUsage, "{}: {} has codec widen, but a buffer holds values of the call's type",
         describe(at), describe(operand.buffer, operand.index));
}

void ScheduleGraph::check_token(const StepId& at, const Step& step) const {
  const auto is_peer = [](const Operand& o) { return o.kind == Operand::Kind::kPeer; };
  if (step.from.empty() == step.to.empty() ||
      !std::all_of(step.from.begin(), step.from.end(), is_peer) ||
      !std::all_of(step.to.begin(), step.to.end(), is_peer))
    fail(ncclInvalidUsage,
         "{}: a step of count 0 sends tokens to peers or receives them from peers", describe(at));
}

void ScheduleGraph::check_memory(const StepId& at, const Operand& operand, int count,
                                 bool written) const {
  const int owner = memory_owner(at.rank, operand);
  // Only FIFOs lead to CPU nodes.
  const bool remote = operand.kind == Operand::Kind::kRemote;
  if (owner < 0 || owner >= static_cast<int>(schedule.ranks.size()) ||
      (remote && (owner == at.rank || schedule.cpu_nodes > 0)))
    fail(ncclInvalidUsage, "{}: reaches into rank {}", describe(at), owner);
  const int size = operand.buffer == Buffer::kInput ? input_chunks(owner)
                   : operand.buffer == Buffer::kOutput
                       ? output_chunks(owner)
                       : schedule.ranks[static_cast<size_t>(owner)].scratch_chunks;
  if (operand.index < 0 || operand.index > size - count)
    fail(ncclInvalidUsage, "{}: {} (count {}) is outside a buffer of {} chunks", describe(at),
         describe(operand.buffer, operand.index), count, size);
  // In place, the rest of the input is scratch, as MSCCL's schedules use it.
  if (written && operand.buffer == Buffer::kInput && (!in_place || output_chunks(owner) == 0))
    fail(ncclInvalidUsage, "{}: writes {}, but an input that is no output belongs to the caller",
         describe(at), describe(operand.buffer, operand.index));
}

// Executors process a step chunk by chunk. So a destination may overlap another operand only if
// each chunk overlaps the same chunk.
void ScheduleGraph::check_overlap(const StepId& at, const Step& step) const {
  // Contiguous chunks of an operand; chunk c of the step lies at `origin` + c.
  struct Stretch {
    int32_t origin, first, end;
  };
  const auto stretches = [&](const Operand& operand, std::vector<Stretch>& out) {
    if (operand.kind == Operand::Kind::kPeer) return;
    const int owner = memory_owner(at.rank, operand);
    const Layout& layout = layouts_[static_cast<size_t>(owner)];
    // In place, an input operand has parts before, inside and after the output.
    int cuts[] = {0, step.count, step.count, step.count};
    if (operand.buffer == Buffer::kInput) {
      cuts[1] = std::clamp(-layout.shift - operand.index, 0, step.count);
      cuts[2] = std::clamp(layout.outputs - layout.shift - operand.index, cuts[1], step.count);
    }
    for (int i = 0; i < 3; i++)
      if (cuts[i] < cuts[i + 1])
        out.push_back({place(owner, operand.buffer, operand.index + cuts[i]) - cuts[i], cuts[i],
                       cuts[i + 1]});
  };
  const auto meets_shifted = [](const Stretch& a, const Stretch& b) {
    return a.origin != b.origin && a.origin + a.first < b.origin + b.end &&
           b.origin + b.first < a.origin + a.end;
  };
  std::vector<Stretch> others, mine;
  for (const Operand& from : step.from) stretches(from, others);
  for (const Operand& to : step.to) {
    mine.clear();
    stretches(to, mine);
    for (const Stretch& written : mine)
      for (const Stretch& other : others)
        if (meets_shifted(written, other))
          fail(ncclInvalidUsage, "{}: {} (count {}) overlaps another of its operands partly",
               describe(at), describe(to.buffer, to.index), step.count);
    others.insert(others.end(), mine.begin(), mine.end());
  }
}

int32_t ScheduleGraph::fifo_number(int source, int destination, int channel) {
  // The key holds two ranks of 24 bits and a channel of 16.
  const uint64_t key = (static_cast<uint64_t>(source) << 40) |
                       (static_cast<uint64_t>(destination) << 16) | static_cast<uint16_t>(channel);
  const auto [it, inserted] = fifo_index_.try_emplace(key, static_cast<int32_t>(fifos.size()));
  if (inserted) fifos.push_back({source, destination, channel});
  return it->second;
}

}  // namespace weft
