// See lane_image.h.
#include "src/exec/cuda/lane_image.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "src/base/error.h"
#include "src/exec/cuda/lane_lending.h"
#include "src/schedule/lane_weights.h"
#include "src/schedule/lower.h"
#include "src/schedule/schedule_graph.h"
#include "src/schedule/straight.h"

namespace weft::cuda {
namespace {

constexpr uint32_t kMostSources = 64;  // kMostEnds of lane_packets.cuh

// The ports of a rank, by FIFO: those it receives from or sends to, in the order of the graph. Both
// ends count alike, so they find each other's words.
struct Positions {
  explicit Positions(const ScheduleGraph& graph)
      : at_consumer(graph.fifos.size()), at_producer(graph.fifos.size()) {
    std::vector<uint32_t> in(graph.schedule.ranks.size()), out(in);
    for (size_t f = 0; f < graph.fifos.size(); f++) {
      const auto& fifo = graph.fifos[f];
      at_consumer[f] = in[static_cast<size_t>(fifo.destination)]++;
      at_producer[f] = out[static_cast<size_t>(fifo.source)]++;
    }
    for (const auto& counts : {in, out})
      for (const uint32_t count : counts) most = std::max(most, count);
  }
  std::vector<uint32_t> at_consumer, at_producer;
  uint32_t most = 0;
};

// The FIFOs of a rank, by peer and channel.
struct Ports {
  Ports(const Program& program, const ScheduleGraph& of) : graph(of), positions(of) {
    for (size_t f = 0; f < graph.fifos.size(); f++) {
      const auto& fifo = graph.fifos[f];
      if (fifo.destination == program.rank) in[{fifo.source, fifo.channel}] = f;
      if (fifo.source == program.rank) out[{fifo.destination, fifo.channel}] = f;
    }
  }
  LaneImagePort port(const ProgramPort& from, bool receives) const {
    const size_t f = (receives ? in : out).at({from.peer, from.channel});
    return {from.peer, positions.at_consumer[f], positions.at_producer[f],
            static_cast<uint32_t>(graph.fifos[f].messages())};
  }
  const ScheduleGraph& graph;
  const Positions positions;
  std::map<std::pair<int, int>, size_t> in, out;
};

LaneOperand::Kind kind_of(ProgramBuffer buffer) {
  return buffer == ProgramBuffer::kInput    ? LaneOperand::kInput
         : buffer == ProgramBuffer::kOutput ? LaneOperand::kOutput
                                            : LaneOperand::kScratch;
}

// One lane of a rank.
class LaneWriter {
 public:
  LaneWriter(LaneImage& image, const Program& program, const Ports& ports,
             const std::vector<StraightPlace>& places, const Apart& apart, std::vector<bool> lends)
      : image_(image),
        program_(program),
        ports_(ports),
        places_(places),
        apart_(apart),
        lends_(std::move(lends)) {}

  LaneImage::Lane write(const ProgramLane& lane) {
    out_ = {};
    ends_[0].clear();
    ends_[1].clear();
    for (uint32_t n = 0; n < lane.steps; n++) add(lane.first_step + n);
    for (auto* ports : {&out_.receives, &out_.sends})
      for (LaneImagePort& port : *ports) port.straight = true;
    for (const LaneOperand& operand : out_.operands)
      if (operand.kind == LaneOperand::kMessage && operand.straight == LaneOperand::kMessage)
        (operand.receives ? out_.receives : out_.sends)[operand.port].straight = false;
    return std::move(out_);
  }

 private:
  // The lane's number of a port, and its messages so far. Only one lane uses a port.
  struct End {
    uint32_t number = 0, messages = 0;
  };

  void add(uint32_t number) {
    const ProgramStep& step = program_.steps[number];
    if (step.sources > kMostSources)
      fail(ncclInvalidUsage, "a step reduces {} chunks at once; kernels do {}", step.sources,
           kMostSources);
    LaneStep to;
    to.first_operand = static_cast<uint32_t>(out_.operands.size());
    to.first_dependency = static_cast<uint32_t>(out_.dependencies.size());
    to.sources = step.sources;
    to.destinations = step.destinations;
    to.dependencies = step.dependencies;
    to.completes = step.completes;
    to.count = step.count;
    to.sub = step.sub;
    for (uint32_t i = 0; i < uint32_t{step.sources} + step.destinations; i++) {
      out_.operands.push_back(operand(step, i));
      to.sends =
          to.sends || (i >= step.sources && out_.operands.back().kind == LaneOperand::kMessage);
    }
    to.coded = step.coded;
    to.simple = step.count <= 1 && step.sources + step.destinations <= kLeaders && !step.coded;
    if (step.coded) check_codecs(step);
    skip_straight(to);
    if (!lends_.empty() && lends_[number] && to.simple) lend(to);
    for (uint32_t i = 0; i < step.dependencies; i++) {
      const ProgramDependency& d = program_.dependencies[step.first_dependency + i];
      out_.dependencies.push_back({d.lane, d.step, program_.lanes[d.lane].steps});
    }
    out_.steps.push_back(to);
  }

  // A warp encodes a block once, and has no room to see memory through several codecs.
  void check_codecs(const ProgramStep& step) const {
    const ProgramOperand* operands = program_.operands.data() + step.first_operand;
    for (uint32_t i = 0; i < step.sources; i++) {
      if (operands[i].codec == 0 || operands[i].buffer == ProgramBuffer::kPeer) continue;
      bool alone = step.sources == 1;
      for (uint32_t d = step.sources; d < uint32_t{step.sources} + step.destinations; d++)
        alone = alone && (operands[d].codec == 0 || operands[d].codec == operands[i].codec);
      if (!alone)
        fail(ncclInvalidUsage,
             "a step reads memory through a codec beside other data; kernels do "
             "not");
    }
  }

  // Puts the place of a straight message first among the destinations.
  void skip_straight(LaneStep& step) {
    const auto first = out_.operands.begin() + step.first_operand;
    if (step.sources != 1 || first->straight == LaneOperand::kMessage) return;
    const LaneOperand source = *first;
    for (auto to = first + 1; to != out_.operands.end(); to++) {
      if (to->kind != source.straight || to->block != source.block || to->index != source.index)
        continue;
      std::rotate(first + 1, to, to + 1);
      step.skips = true;
      return;
    }
  }

  // Messages to other hosts may be lent, and are the last destinations.
  void lend(const LaneStep& step) {
    const auto first = out_.operands.begin() + step.first_operand, to = first + 1;
    if (first->kind == LaneOperand::kMessage && first->straight != LaneOperand::kOutput) return;
    for (auto operand = to; operand != out_.operands.end(); operand++)
      operand->lends =
          operand->kind == LaneOperand::kMessage && apart_(out_.sends[operand->port].peer);
    image_.lends = image_.lends || std::any_of(to, out_.operands.end(),
                                               [](const LaneOperand& o) { return o.lends; });
    std::stable_partition(to, out_.operands.end(), [](const LaneOperand& o) { return !o.lends; });
    for (auto operand = to; operand != out_.operands.end(); operand++)
      operand->place = static_cast<uint16_t>(operand - first);
  }

  void place(LaneOperand& operand, LaneOperand::Kind kind, int32_t index) const {
    const bool blocks = kind != LaneOperand::kScratch;
    operand.block = blocks ? index / program_.chunks : 0;
    operand.index = index - operand.block * program_.chunks;
  }

  LaneOperand operand(const ProgramStep& step, uint32_t i) {
    const ProgramOperand& from = program_.operands[step.first_operand + i];
    const bool receives = i < step.sources;
    LaneOperand to;
    to.raw = receives && (step.raw_sources >> i & 1) != 0;
    to.codec = from.codec & 0x7fu;
    if (from.buffer != ProgramBuffer::kPeer) {
      if (from.owner >= 0)
        fail(ncclInvalidUsage, "a step accesses the memory of rank {} without messages",
             from.owner);
      to.kind = kind_of(from.buffer);
      place(to, to.kind, from.index);
      return to;
    }
    const auto port = static_cast<size_t>(from.index);
    auto& ends = ends_[receives ? 0 : 1];
    auto [end, is_new] = ends.try_emplace(port);
    if (is_new) {
      auto& list = receives ? out_.receives : out_.sends;
      end->second.number = static_cast<uint32_t>(list.size());
      list.push_back(ports_.port((receives ? program_.receives : program_.sends)[port], receives));
    }
    to.kind = LaneOperand::kMessage;
    to.receives = receives ? 1 : 0;
    to.port = static_cast<uint16_t>(end->second.number);
    to.order = end->second.messages++;
    if (!places_.empty() && places_[step.first_operand + i].index >= 0) {
      const StraightPlace& at = places_[step.first_operand + i];
      to.straight = at.buffer == Buffer::kOutput ? LaneOperand::kOutput : LaneOperand::kScratch;
      place(to, to.straight, at.index);
      to.far = to.straight == LaneOperand::kOutput && step.count == 1;
    }
    if (receives) {
      image_.messages++;
      if (to.straight != LaneOperand::kMessage) image_.straight_messages++;
    }
    return to;
  }

  LaneImage& image_;
  const Program& program_;
  const Ports& ports_;
  const std::vector<StraightPlace>& places_;
  const Apart& apart_;
  const std::vector<bool> lends_;  // by step; empty: none does
  LaneImage::Lane out_;
  std::map<size_t, End> ends_[2];  // receives, sends
};

// (Of whole steps a thread has other words than of single chunks, so threads must meet.)
bool is_simple(const LaneImage::Lane& lane) {
  return std::all_of(lane.steps.begin(), lane.steps.end(),
                     [](const LaneStep& step) { return step.simple && !step.whole; });
}

bool is_plain_message(const Operand& to) {
  return to.kind == Operand::Kind::kPeer && to.codec == 0;
}

bool has_plain_messages(const Schedule& schedule) {
  for (const RankSchedule& rank : schedule.ranks)
    for (const Lane& lane : rank.lanes)
      for (const Step& step : lane.steps)
        if (std::any_of(step.to.begin(), step.to.end(), is_plain_message)) return true;
  return false;
}

// The heaviest lanes first, so that blocks get their share of them (dealt_item()).
void sort_lanes(LaneImage& image, const std::vector<uint64_t>& weights) {
  std::vector<uint32_t> order(image.lanes.size()), place(order);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return weights[a] > weights[b]; });
  std::vector<LaneImage::Lane> sorted;
  for (const uint32_t lane : order) {
    place[lane] = static_cast<uint32_t>(sorted.size());
    sorted.push_back(std::move(image.lanes[lane]));
    sorted.back().number = lane;
  }
  for (LaneImage::Lane& lane : sorted)
    for (LaneDependency& d : lane.dependencies) d.lane = place[d.lane];
  image.lanes = std::move(sorted);
}

template <typename T>
uint32_t append(std::vector<std::byte>& bytes, const std::vector<T>& items) {
  const size_t at = bytes.size(), more = items.size() * sizeof(T);
  bytes.resize((at + more + 15) / 16 * 16);
  if (more > 0) std::memcpy(bytes.data() + at, items.data(), more);
  return static_cast<uint32_t>(at);
}

}  // namespace

size_t LaneImage::steps() const {
  size_t all = 0;
  for (const Lane& lane : lanes) all += lane.steps.size();
  return all;
}

std::vector<std::byte> write_lane(const LaneImage::Lane& lane, const LaneHead& head,
                                  const FillPort& port) {
  LaneHead out = head;
  std::vector<std::byte> bytes(sizeof out);
  out.steps = static_cast<uint32_t>(lane.steps.size());
  out.operands = static_cast<uint32_t>(lane.operands.size());
  out.receives = static_cast<uint32_t>(lane.receives.size());
  out.sends = static_cast<uint32_t>(lane.sends.size());
  out.plain = lane.alone && is_simple(lane);
  out.only_arrives = std::all_of(lane.steps.begin(), lane.steps.end(), [](const LaneStep& step) {
    return step.skips && step.destinations == 1 && !step.counted;
  });
  append(bytes, lane.steps);
  out.operands_at = append(bytes, lane.operands);
  out.dependencies_at = append(bytes, lane.dependencies);
  std::vector<LanePort> receives, sends;
  for (const LaneImagePort& from : lane.receives) {
    receives.push_back(port(from, true));
    receives.back().straight = from.straight;
  }
  for (const LaneImagePort& from : lane.sends) {
    sends.push_back(port(from, false));
    sends.back().straight = from.straight;
  }
  out.receives_at = append(bytes, receives);
  out.sends_at = append(bytes, sends);
  std::memcpy(bytes.data(), &out, sizeof out);
  return bytes;
}

std::vector<std::byte> join_lanes(const std::vector<std::vector<std::byte>>& lanes,
                                  uint32_t& lane_bytes, uint32_t& resolved_bytes) {
  lane_bytes = resolved_bytes = 0;
  for (const LaneSize& size : lane_sizes(lanes)) {
    lane_bytes = std::max(lane_bytes, size.lane);
    resolved_bytes = std::max(resolved_bytes, size.resolved);
  }
  std::vector<std::byte> all(lanes.size() * lane_bytes);
  for (size_t i = 0; i < lanes.size(); i++)
    std::copy(lanes[i].begin(), lanes[i].end(),
              all.begin() + static_cast<ptrdiff_t>(i * lane_bytes));
  return all;
}

std::vector<LaneSize> lane_sizes(const std::vector<std::vector<std::byte>>& lanes) {
  std::vector<LaneSize> sizes;
  for (const auto& lane : lanes) {
    LaneHead head;
    std::memcpy(&head, lane.data(), sizeof head);
    sizes.push_back({static_cast<uint32_t>(lane.size()), head.resolved_bytes()});
  }
  return sizes;
}

std::string unfit_for_lanes(const std::vector<CodecSpec>& codecs) {
  if (codecs.size() > kMostLaneCodecs)
    return fmt::format("it has {} codecs; kernels do {}", codecs.size(), kMostLaneCodecs);
  for (const CodecSpec& spec : codecs)
    if (spec.block != codecs.front().block)
      return fmt::format("codec {}: kernels have one block for all codecs", describe(spec));
  return "";
}

LaneImage lane_image(const VerifiedSchedule& verified, const VerifiedSchedule* also, int rank,
                     int fifo_depth, bool straight, const Apart& apart) {
  const Schedule& schedule = verified.schedule();
  const Program program = lower(verified, rank);
  std::vector<StraightPlace> places;
  if (straight) places = straight_places(verified, rank);
  if (straight && also != nullptr) {
    const std::vector<StraightPlace> others = straight_places(*also, rank);
    for (size_t i = 0; i < places.size(); i++)
      if (i >= others.size() || others[i] != places[i]) places[i] = {};
  }
  LaneImage image;
  image.collective = program.collective;
  image.rank = rank;
  image.chunks = program.chunks;
  image.uniform_only = program.uniform_only;
  image.partial_sums = program.partial_sums;
  if (const std::string why = unfit_for_lanes(program.codecs); !why.empty())
    fail(ncclInvalidUsage, "schedule {}: {}", schedule.name, why);
  image.codecs = program.codecs;
  image.all_coded = !program.codecs.empty() && !has_plain_messages(schedule);
  image.scratch_chunks = program.scratch_chunks;
  image.step_chunks = program.max_step_chunks;
  image.fifo_depth = fifo_depth;
  for (const RankSchedule& part : schedule.ranks)
    image.most_lanes = std::max(image.most_lanes, static_cast<uint32_t>(part.lanes.size()));
  const Ports ports(program, verified.graph());
  image.most_ports = ports.positions.most;
  for (const auto& fifo : verified.graph().fifos)
    image.most_messages = std::max(image.most_messages, static_cast<uint32_t>(fifo.messages()));
  LaneWriter writer(image, program, ports, places, apart,
                    apart ? steps_that_lend(verified, rank) : std::vector<bool>());
  for (const ProgramLane& lane : program.lanes) {
    image.lanes.push_back(writer.write(lane));
    image.lanes.back().alone = program.lanes.size() == 1;
    image.simple = image.simple && is_simple(image.lanes.back());
  }
  for (const ProgramDependency& d : program.dependencies)
    image.lanes[d.lane].steps[d.step].counted = true;
  sort_lanes(image, lane_weights(schedule.ranks[static_cast<size_t>(rank)]));
  image.weights = weights_of_heaviest(schedule);
  return image;
}

bool lay_end_to_end(LaneImage& image, uint32_t leaders) {
  bool any = false;
  if (!image.codecs.empty()) return any;  // chunks_are_whole() is false
  for (LaneImage::Lane& lane : image.lanes)
    for (LaneStep& step : lane.steps) {
      if (step.count <= 1 || step.sources + step.destinations > leaders) continue;
      step.simple = step.whole = true;
      any = true;
    }
  return any;
}

bool sends_to(const LaneImage& image, int peer) {
  return std::any_of(image.lanes.begin(), image.lanes.end(), [&](const LaneImage::Lane& lane) {
    return std::any_of(lane.sends.begin(), lane.sends.end(),
                       [&](const LaneImagePort& port) { return port.peer == peer; });
  });
}

}  // namespace weft::cuda
