// One simulation under way; simulator.h says what it does. An event is a message whose first byte
// can enter its next link, or that has arrived; a piece of a step that can write; or a step that
// ends. Links need no queues: messages come in the order of their events, so the time at which a
// link is free again is all there is to know about it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/simulator/event_queue.h"
#include "src/simulator/simulator.h"

namespace weft {

// Made, run once, thrown away. Machine and graph must outlive it.
class SimulationRun {
 public:
  SimulationRun(SimulatedMachine& machine, const ScheduleGraph& graph, double bytes,
                const SimulationOptions& options);
  Simulation run();

 private:
  // What a message brings where it goes.
  enum class Purpose : uint8_t { kFifo, kRead, kWrite };

  struct Message {
    const int32_t* route = nullptr;
    int32_t hops = 0, hop = 0;
    double bytes = 0;
    double tail_us = 0;  // when its last byte is where its first byte is now
    int32_t target = 0;  // number of the FIFO, or of the piece that reads or writes
    int32_t span = 0;    // who sent it
    int32_t destination = 0;
    Purpose purpose = Purpose::kFifo;
  };

  struct FifoState {
    int32_t sent = 0, arrived = 0, taken = 0;  // messages
    int32_t producer_lane = -1, consumer_lane = -1, destination = 0;
    std::span<const int32_t> route;
  };

  // What a step waits for and moves, side by side with all others for speed.
  struct StepPlan {
    int32_t after = 0, takes = 0, sends = 0, end = 0;  // indices into waits_
    double bytes = 0;                                  // of a slice
    double us = 0;                                     // overhead
  };
  struct Wait {
    int32_t on = 0;    // lane, or FIFO
    int32_t step = 0;  // of the lane, by its number over all ranks
  };

  struct LinkState {
    double us_per_byte = 0, us = 0, free_us = 0;
    double busy_us = 0, bytes = 0;
  };

  struct LaneState {
    int32_t step = 0, slice = 0;  // the one at work or waited for, by its number over all ranks
    int32_t gate = 0;             // the first of its waits that is not known to be over
    int32_t first = 0, end = 0;   // its steps
    int32_t fifo = -1;            // the one it waits for, -1 if none
    bool busy = false;
    int32_t pieces = 1, begun = 0, ended = 0;  // of the step at work
    double end_us = 0;                         // of what has ended of it
    std::vector<int32_t> waiting;              // lanes that wait for this one
  };

  // What a step does at once. Steps that reach into peers' memory do many, several of them at a
  // time; all others are one piece.
  struct Piece {
    int32_t lane = 0;
    int32_t unfinished = 0;           // reads that have not begun to arrive; then writes
    double head_us = 0, tail_us = 0;  // when all that is read has begun to arrive, and has arrived
  };

  // Items that come and go; their numbers are used again.
  template <typename Item>
  struct Slots {
    std::vector<Item> items;
    std::vector<size_t> unused;
    Item& operator[](size_t index) { return items[index]; }
    size_t take() {
      if (unused.empty()) {
        items.emplace_back();
        return items.size() - 1;
      }
      const size_t index = unused.back();
      unused.pop_back();
      return index;
    }
    void give_back(size_t index) { unused.push_back(index); }
  };

  enum class Kind : uint32_t { kMessage, kWrite, kStepEnd };
  void push(double at, Kind kind, size_t index) {
    events_.push(at, static_cast<uint32_t>(kind) << 30 | static_cast<uint32_t>(index));
  }

  // Set-up and result: simulator.cc

  // Looks up the route of every FIFO, the one that the schedule hints at if it does, and checks
  // that of every access to a peer's memory.
  void find_routes();
  void plan_steps();
  bool leads(const RouteHint& hint) const;
  [[noreturn]] void no_way(int from, int to) const;
  void check_finished() const;
  Simulation result();

  // Estimates: simulation_estimate.cc

  // All lanes are done with one more slice. Decides whether those to come can be foretold; then no
  // lane begins one that none has begun yet.
  void end_slice();
  // How many slices the pattern has in which they come; 0 if there is none.
  int find_period() const;
  // By how much their pace has changed lately, of the whole.
  double unevenness() const;
  // What the slices that are not simulated take.
  double rest_us() const;
  double pace_us(size_t first, size_t last) const {
    return (slices_done_[last].at_us - slices_done_[first].at_us) /
           static_cast<double>(last - first);
  }

  // Lanes and their steps: simulation_steps.cc

  // Begins the lane's step if all its conditions hold; otherwise whatever it waits for will try
  // again. `cause` is the span that made the last condition true.
  void try_begin(int32_t number, int32_t cause);
  // If that FIFO is what the lane waits for.
  void wake(int32_t lane, int32_t fifo, int32_t cause);
  bool done(int32_t number, const Wait& wait);
  void begin_step(int32_t number, int32_t cause);
  void end_step(int32_t number);
  // How many pieces: memory is read and written piece by piece; a message is always whole.
  int32_t pieces(int32_t number) const;
  double piece_bytes(int32_t lane) const;
  void begin_piece(int32_t number, double at);
  // What the piece reads has begun to arrive: what it writes sets out.
  void write(size_t index);
  // Whether the step at work on the lane sends anything anywhere.
  bool writes(int32_t lane) const;
  // One of the piece's writes has arrived, or all have been sent.
  void finish_part(size_t index);

  // Messages and links: simulation_run.cc

  // Returns when the message has left the sender, if it can set out now.
  double send(std::span<const int32_t> route, Purpose purpose, int32_t target, int32_t lane,
              int32_t destination, double at, double tail);
  // The message's first byte enters its next link; returns when its last byte has left it. A link
  // is charged as soon as the message enters, though the last byte may come later from a slower
  // one.
  double cross(size_t index);
  void arrive(size_t index);

  const Step& step_of(int32_t lane) const { return *graph_.steps[step_number(lane)]; }
  int32_t step_number(int32_t lane) const { return lanes_[lane].step; }
  const StepPlan& plan_of(int32_t lane) const { return plans_[lanes_[lane].step]; }
  int32_t span_number(int32_t lane) const {
    return static_cast<int32_t>(graph_.steps.size()) * lanes_[lane].slice + step_number(lane);
  }
  static bool is_remote(int rank, const Operand& operand) {
    return operand.kind == Operand::Kind::kRemote && operand.owner != rank;
  }

  const Machine& machine_;
  const double bytes_;
  const SimulationOptions options_;
  const ScheduleGraph& graph_;
  const FlowGraph& ways_;
  Routes& routes_;
  bool uses_peer_memory_ = false;       // into peers' memory: such programs run once, see pieces()
  int32_t slices_ = 1, simulated_ = 1;  // of all slices, the first so many
  double slice_bytes_ = 0;

  EventQueue events_;
  double now_ = 0, end_us_ = 0;
  // When all lanes were done with a slice, and which was the last one that a lane had begun.
  struct SliceDone {
    double at_us = 0;
    int32_t begun = 0;
  };
  std::vector<SliceDone> slices_done_;
  std::vector<int32_t> lanes_left_;  // per slice, those that are not done with it
  int32_t begun_ = 0;
  int period_ = 1;          // of the estimate, 0: none was found
  double busiest_us_ = 0;   // no slice takes less: the time it keeps some link busy
  double given_up_us_ = 0;  // what it would have taken, where nobody wants to know it better
  double pace_us_ = 0;      // of the estimate
  int32_t last_span_ = -1;
  std::vector<LinkState> links_;
  std::vector<StepPlan> plans_;
  std::vector<Wait> waits_;  // per step: steps of other lanes, FIFOs to take from, FIFOs to send to
  std::vector<FifoState> fifos_;
  std::vector<LaneState> lanes_;
  Slots<Message> messages_;
  Slots<Piece> pieces_;
  std::vector<int32_t> woken_;  // for end_step()
  std::vector<StepSpan> spans_;
  std::vector<LinkSpan> transfers_;
};

}  // namespace weft
