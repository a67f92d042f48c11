// A Schedule seen as a graph of steps: numbering, FIFOs with their producer and consumer, memory
// locations.
#pragma once

#include <cstdint>
#include <vector>

#include "src/schedule/schedule.h"

namespace weft {

struct StepId {
  int32_t rank = 0, lane = 0, step = 0;
};

// Built once per verify(); checks everything that can be checked without running: bounds, operand
// counts, FIFO owners.
class ScheduleGraph {
 public:
  ScheduleGraph(const Schedule& schedule, bool in_place);

  struct Fifo {
    int32_t source = 0, destination = 0, channel = 0;
    int32_t producer_lane = -1, consumer_lane = -1;  // lane numbers over all ranks
    int32_t last_sent = -1, last_received = -1;      // numbers of the last steps that use it
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
  // FIFO number of every peer operand, steps in order, sources before destinations.
  std::vector<int32_t> operand_fifo;
  std::vector<int32_t> first_operand;  // per step, index into operand_fifo

  int32_t step_number(int rank, int lane, int step) const {
    return lanes[static_cast<size_t>(first_lane[static_cast<size_t>(rank)] + lane)].first_step +
           step;
  }
  StepId id(int32_t step) const {
    const LaneRef& lane = lanes[static_cast<size_t>(step_lane[static_cast<size_t>(step)])];
    return {lane.rank, lane.lane, step - lane.first_step};
  }

  // Whose memory an operand (not a FIFO) of a step of `rank` is.
  static int memory_owner(int rank, const Operand& operand) {
    return operand.kind == Operand::Kind::kRemote ? operand.owner : rank;
  }

  // Every chunk of memory a rank has, as one number; aliases of an in-place call share a number.
  int32_t location(int rank, Buffer buffer, int index) const;
  int32_t locations(int rank) const;

  int input_chunks(int rank) const {
    return schedule.collective.input_blocks(rank) * schedule.chunks;
  }
  int output_chunks(int rank) const {
    return schedule.collective.output_blocks(rank) * schedule.chunks;
  }

 private:
  int32_t fifo_number(int source, int destination, int channel);
  void check_token(const StepId& at, const Step& step) const;
  void check_memory(const StepId& at, const Operand& operand, int count) const;
  void check_overlap(const StepId& at, const Step& step) const;
  std::vector<std::vector<std::pair<int64_t, int32_t>>> fifo_index_;  // per source rank
};

// "rank 3 lane 0 step 7": how every message names a step.
std::string describe(const StepId& id);
std::string describe(Buffer buffer, int index);

}  // namespace weft
