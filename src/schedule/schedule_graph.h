// A Schedule seen as a graph of steps: numbering, FIFOs with their producer and consumer, memory
// locations.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/schedule/schedule.h"

namespace weft {

struct StepId {
  int32_t rank = 0, lane = 0, step = 0;
};

// Built once per verify(). Checks everything that needs no execution: bounds, operand counts, FIFO
// owners.
class ScheduleGraph {
 public:
  ScheduleGraph(const Schedule& schedule, bool in_place);

  struct Fifo {
    int32_t source = 0, destination = 0, channel = 0;
    int32_t producer_lane = -1, consumer_lane = -1;  // lane numbers over all ranks
    int32_t last_sent = -1, last_received = -1;      // numbers of the last steps that use it
    int32_t sent = 0, received = 0;                  // messages
    int32_t first_message = 0;                       // index into `senders` and `receivers`
    int32_t most_chunks = 0;                         // in one message
    int32_t messages() const { return sent < received ? received : sent; }
  };
  struct LaneRef {
    int32_t rank = 0, lane = 0;
    int32_t first_step = 0;  // number of its first step over all ranks
    int32_t size = 0;
  };

  const Schedule& schedule;
  const bool in_place;
  std::vector<LaneRef> lanes;       // all lanes of all ranks, rank by rank
  std::vector<int32_t> first_lane;  // per rank; one more entry at the end
  std::vector<Fifo> fifos;
  std::vector<int32_t> step_lane;  // lane number of every step
  std::vector<const Step*> steps;  // all steps
  // Per operand: the FIFO's number (-1: memory), and the number of the message in it. Steps are in
  // order, sources before destinations.
  std::vector<int32_t> operand_fifo, operand_message;
  std::vector<int32_t> first_operand;  // per step, index into operand_fifo
  // The steps that send and receive each message, -1: none. A FIFO has one lane at either end. So
  // its n-th send matches its n-th receive, in whatever order lanes run.
  std::vector<int32_t> senders, receivers;

  int32_t step_number(int rank, int lane, int step) const {
    return lanes[static_cast<size_t>(first_lane[static_cast<size_t>(rank)] + lane)].first_step +
           step;
  }
  // The number of a rank's first step. For the number after the last rank, the end.
  int32_t first_step(int rank) const {
    const auto lane = static_cast<size_t>(first_lane[static_cast<size_t>(rank)]);
    return lane < lanes.size() ? lanes[lane].first_step : static_cast<int32_t>(steps.size());
  }
  StepId id(int32_t step) const {
    const LaneRef& lane = lanes[static_cast<size_t>(step_lane[static_cast<size_t>(step)])];
    return {lane.rank, lane.lane, step - lane.first_step};
  }

  // A step, and where its chunk `c` is on this rank: "rank 3 lane 0 step 7 (output chunk 2)".
  std::string describe_chunk(int32_t step, int c) const;

  // The rank whose memory an operand (not a FIFO) of a step of `rank` is in.
  static int memory_owner(int rank, const Operand& operand) {
    return operand.kind == Operand::Kind::kRemote ? operand.owner : rank;
  }

  // The step that receives the message of destination `i` of a step.
  int32_t receiver(int32_t step, size_t i) const {
    const auto n = static_cast<size_t>(step);
    const size_t operand = static_cast<size_t>(first_operand[n]) + steps[n]->from.size() + i;
    const int32_t fifo = operand_fifo[operand];
    if (fifo < 0) return -1;
    return receivers[static_cast<size_t>(fifos[static_cast<size_t>(fifo)].first_message +
                                         operand_message[operand])];
  }

  // A number for every chunk of a rank's memory. In an in-place call, aliases share a number.
  int32_t location(int rank, Buffer buffer, int index) const {
    const Layout& at = layouts_[static_cast<size_t>(rank)];
    if (buffer == Buffer::kScratch) return at.inputs + at.outputs + index;
    if (buffer == Buffer::kOutput) return at.inputs + index;
    // In place, an input chunk inside the output takes the output's number. In reduce_scatter and
    // scatter the output lies inside the input; those input chunks take the output's numbers too.
    const int as_output = index + at.shift;
    return in_place && as_output >= 0 && as_output < at.outputs ? at.inputs + as_output : index;
  }
  // A number for every chunk of all ranks' memory.
  int32_t place(int rank, Buffer buffer, int index) const {
    return layouts_[static_cast<size_t>(rank)].first + location(rank, buffer, index);
  }
  int32_t places() const { return places_; }
  // The first place of a rank. For the number after the last rank, the end.
  int32_t first_place(int rank) const {
    return static_cast<size_t>(rank) < layouts_.size() ? layouts_[static_cast<size_t>(rank)].first
                                                       : places_;
  }
  // "output chunk 3 of rank 1"
  std::string describe_place(int32_t place) const;
  bool has_remote() const { return remote_; }

  int input_chunks(int rank) const {
    return schedule.collective.input_blocks(rank) * schedule.chunks;
  }
  int output_chunks(int rank) const {
    return schedule.collective.output_blocks(rank) * schedule.chunks;
  }

 private:
  struct Layout {
    int32_t first = 0, inputs = 0, outputs = 0, shift = 0;
  };
  void lay_out();
  void number_steps();
  void check_step(int32_t number);
  void add_peer(int32_t number, const Operand& operand, bool sends);
  void match_messages();
  void match_codecs() const;
  void check_memory_codec(const StepId& at, const Operand& operand) const;
  int32_t fifo_number(int source, int destination, int channel);
  void check_token(const StepId& at, const Step& step) const;
  void check_memory(const StepId& at, const Operand& operand, int count, bool written) const;
  void check_overlap(const StepId& at, const Step& step) const;
  std::vector<Layout> layouts_;
  int32_t places_ = 0;
  bool remote_ = false;
  int64_t moves_ = 0;                                 // chunks that all steps touch together
  std::unordered_map<uint64_t, int32_t> fifo_index_;  // by source, destination and channel
};

// A step as every error names it: "rank 3 lane 0 step 7".
std::string describe(const StepId& id);
std::string describe(Buffer buffer, int index);

}  // namespace weft
