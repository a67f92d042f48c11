// See lane_image.h.
#include "src/exec/cuda/lane_image.h"

#include <algorithm>
#include <map>

#include "src/base/error.h"
#include "src/schedule/lower.h"
#include "src/schedule/schedule_graph.h"
#include "src/schedule/straight.h"

namespace weft::cuda {
namespace {

constexpr uint32_t kMostSources = 64;  // kMostEnds of combine.cuh

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

// Fills in the ports, numbered as in the program.
void add_ports(LaneImage& image, const Program& program, const ScheduleGraph& graph) {
  const Positions positions(graph);
  image.most_ports = positions.most;
  std::map<std::pair<int, int>, size_t> in, out;
  for (size_t f = 0; f < graph.fifos.size(); f++) {
    const auto& fifo = graph.fifos[f];
    if (fifo.destination == program.rank) in[{fifo.source, fifo.channel}] = f;
    if (fifo.source == program.rank) out[{fifo.destination, fifo.channel}] = f;
  }
  const auto add = [&](std::vector<LaneImagePort>& ports, const ProgramPort& port, size_t f) {
    ports.push_back({port.peer, positions.at_consumer[f], positions.at_producer[f],
                     static_cast<uint32_t>(graph.fifos[f].messages())});
  };
  for (const ProgramPort& port : program.receives)
    add(image.receives, port, in.at({port.peer, port.channel}));
  for (const ProgramPort& port : program.sends)
    add(image.sends, port, out.at({port.peer, port.channel}));
}

LaneOperand::Kind kind_of(ProgramBuffer buffer) {
  return buffer == ProgramBuffer::kInput    ? LaneOperand::kInput
         : buffer == ProgramBuffer::kOutput ? LaneOperand::kOutput
                                            : LaneOperand::kScratch;
}

// A lane's operands. A port belongs to one lane, so its messages are numbered here.
void add_operands(LaneImage& image, const Program& program, const ProgramStep& step,
                  const std::vector<StraightPlace>& places, std::vector<uint32_t>& sent,
                  std::vector<uint32_t>& received) {
  for (uint32_t i = 0; i < uint32_t{step.sources} + step.destinations; i++) {
    const ProgramOperand& from = program.operands[step.first_operand + i];
    LaneOperand operand;
    operand.raw = i < step.sources && (step.raw_sources >> i & 1) != 0;
    if (from.buffer != ProgramBuffer::kPeer) {
      if (from.owner >= 0)
        fail(ncclInvalidUsage, "a step accesses the memory of rank {} without messages",
             from.owner);
      operand.kind = kind_of(from.buffer);
      operand.index = from.index;
    } else {
      operand.kind = LaneOperand::kMessage;
      operand.port = static_cast<uint32_t>(from.index);
      operand.order = (i < step.sources ? received : sent)[operand.port]++;
      if (!places.empty() && places[step.first_operand + i].index >= 0) {
        const StraightPlace& place = places[step.first_operand + i];
        operand.straight =
            place.buffer == Buffer::kOutput ? LaneOperand::kOutput : LaneOperand::kScratch;
        operand.index = place.index;
      }
      if (i < step.sources) {
        image.messages++;
        if (operand.straight != LaneOperand::kMessage) image.straight_messages++;
      }
    }
    image.operands.push_back(operand);
  }
}

void mark_counted(LaneImage& image) {
  for (const ProgramDependency& d : image.dependencies)
    image.steps[image.lanes[d.lane].first_step + d.step].counted = true;
}

}  // namespace

LaneImage lane_image(const VerifiedSchedule& verified, int rank, int fifo_depth, bool straight) {
  const Schedule& schedule = verified.schedule();
  const Program program = lower(verified, rank);
  const std::vector<StraightPlace> places =
      straight ? straight_places(verified, rank) : std::vector<StraightPlace>();
  LaneImage image;
  image.collective = program.collective;
  image.rank = rank;
  image.chunks = program.chunks;
  image.uniform_only = program.uniform_only;
  image.partial_sums = program.partial_sums;
  image.scratch_chunks = program.scratch_chunks;
  image.step_chunks = program.max_step_chunks;
  image.fifo_depth = fifo_depth;
  for (const RankSchedule& part : schedule.ranks)
    image.most_lanes = std::max(image.most_lanes, static_cast<uint32_t>(part.lanes.size()));
  add_ports(image, program, verified.graph());
  std::vector<uint32_t> sent(program.sends.size()), received(program.receives.size());
  for (const ProgramLane& lane : program.lanes) {
    LaneRange range{lane.first_step, lane.steps,
                    static_cast<uint32_t>(image.lane_receives.size()), 0};
    for (uint32_t n = 0; n < lane.steps; n++) {
      const ProgramStep& step = program.steps[lane.first_step + n];
      if (step.sources > kMostSources)
        fail(ncclInvalidUsage, "a step reduces {} chunks at once; kernels do {}", step.sources,
             kMostSources);
      LaneStep out;
      out.first_operand = static_cast<uint32_t>(image.operands.size());
      out.first_dependency = step.first_dependency;
      out.sources = step.sources;
      out.destinations = step.destinations;
      out.dependencies = step.dependencies;
      out.completes = step.completes;
      out.count = step.count;
      out.sub = step.sub;
      add_operands(image, program, step, places, sent, received);
      for (uint32_t i = 0; i < step.sources; i++) {
        const LaneOperand& operand = image.operands[out.first_operand + i];
        const auto first = image.lane_receives.begin() + range.first_receive;
        if (operand.kind == LaneOperand::kMessage &&
            std::find(first, image.lane_receives.end(), operand.port) == image.lane_receives.end())
          image.lane_receives.push_back(operand.port);
      }
      image.steps.push_back(out);
    }
    range.receives = static_cast<uint32_t>(image.lane_receives.size()) - range.first_receive;
    image.lanes.push_back(range);
  }
  image.dependencies = program.dependencies;
  mark_counted(image);
  return image;
}

}  // namespace weft::cuda
