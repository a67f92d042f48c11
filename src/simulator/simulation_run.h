// One simulation under way; simulator.h has the model. There are three kinds of events. A message's
// first byte can enter its next link, or the message has arrived. A piece of a step can write. A
// step ends. Links need no queues: messages enter a link in the order of their events, so a link
// only stores when it is free again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/simulator/event_queue.h"
#include "src/simulator/simulator.h"

namespace weft {

// Construct it, call run() once, destroy it. Machine and graph must outlive it.
class SimulationRun {
 public:
  SimulationRun(SimulatedMachine& machine, const ScheduleGraph& graph, double bytes,
                const SimulationOptions& options);
  Simulation run();

 private:
  // Why a message travels: for a FIFO, or for a read or write of peer memory.
  enum class Purpose : uint8_t { kFifo, kRead, kWrite };

  struct Message {
    const int32_t* route = nullptr;
    int32_t hops = 0, hop = 0;
    double bytes = 0;
    double tail_us = 0;  // when its last byte arrives where its first byte is now
    int32_t target = 0;  // number of the FIFO, or of the piece that reads or writes
    int32_t span = 0;    // the span that sent it
    int32_t destination = 0;
    Purpose purpose = Purpose::kFifo;
  };

  struct FifoState {
    int32_t sent = 0, arrived = 0, taken = 0;  // messages
    int32_t producer_lane = -1, consumer_lane = -1, destination = 0;
    std::span<const int32_t> route;
  };

  // The waits and bytes of a step, in one flat array for speed.
  struct StepPlan {
    int32_t after = 0, takes = 0, sends = 0, end = 0;  // indices into waits_
    double bytes = 0;                                  // per slice
    double us = 0;                                     // overhead
  };
  struct Wait {
    int32_t on = 0;    // lane, or FIFO
    int32_t step = 0;  // its number over all ranks
    double share = 1;  // of the step's bytes that a message has
  };

  struct LinkState {
    double us_per_byte = 0, us = 0, free_us = 0;
    double busy_us = 0, bytes = 0;
  };

  struct LaneState {
    int32_t step = 0, slice = 0;  // in progress or waited for; the step's number over all ranks
    int32_t gate = 0;             // the first of its waits that may not be over yet
    int32_t first = 0, end = 0;   // its steps
    int32_t fifo = -1;            // the FIFO it waits for, -1 if none
    bool busy = false;
    int32_t pieces = 1, begun = 0, ended = 0;  // of the step in progress
    double end_us = 0;                         // when its finished pieces ended
    std::vector<int32_t> waiting;              // lanes that wait for this lane
  };

  // The part of a step that moves at once. Steps that access peer memory have many pieces, several
  // in flight at a time. All other steps are one piece.
  struct Piece {
    int32_t lane = 0;
    int32_t unfinished = 0;           // reads that have not begun to arrive; later, writes
    double head_us = 0, tail_us = 0;  // when all reads have begun to arrive, and have arrived
  };

  // A pool of items. It reuses the numbers of items that were given back.
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

  // Looks up the route of every FIFO: the schedule's hint if there is one. Checks that every access
  // to peer memory has a route.
  void find_routes();
  void plan_steps();
  // The size of a coded message, as a share of its plain size.
  double share_of(const Operand& operand) const;
  // What encoding and decoding cost a step.
  double codec_us(const Step& step, double bytes) const;
  bool leads(const RouteHint& hint) const;
  [[noreturn]] void no_way(int from, int to) const;
  void check_finished() const;
  Simulation result();

  // Estimates: simulation_estimate.cc

  // All lanes have finished one more slice. Decides whether the pace predicts the remaining slices;
  // if so, lanes begin no new slice.
  void end_slice();
  // After how many slices their pattern repeats; 0 if it does not.
  int find_period() const;
  // Relative change of the pace over the last slices.
  double unevenness() const;
  // Predicted time of the slices that are not simulated.
  double rest_us() const;
  double pace_us(size_t first, size_t last) const {
    return (slices_done_[last].at_us - slices_done_[first].at_us) /
           static_cast<double>(last - first);
  }

  // Lanes and their steps: simulation_steps.cc

  // Begins the lane's step if all its conditions hold. Otherwise the event that meets the next
  // condition calls this again. `cause` is the span that met the last condition.
  void try_begin(int32_t number, int32_t cause);
  // Tries the lane's step if the lane waits for this FIFO.
  void wake(int32_t lane, int32_t fifo, int32_t cause);
  bool done(int32_t number, const Wait& wait);
  void begin_step(int32_t number, int32_t cause);
  void end_step(int32_t number);
  // Number of pieces of the lane's step. Memory accesses move in pieces; a message is always whole.
  int32_t pieces(int32_t number) const;
  double piece_bytes(int32_t lane) const;
  void begin_piece(int32_t number, double at);
  // The piece's reads have begun to arrive, so its writes start.
  void write(size_t index);
  // Whether the lane's step sends messages or writes to peer memory.
  bool writes(int32_t lane) const;
  // One of the piece's writes has arrived, or all writes have been sent.
  void finish_part(size_t index);

  // Messages and links: simulation_run.cc

  // Returns when the message has left the sender, if it can start now; otherwise `at`.
  double send(std::span<const int32_t> route, Purpose purpose, int32_t target, int32_t lane,
              int32_t destination, double at, double tail, double share = 1);
  // The message's first byte enters its next link. Returns when its last byte has left that link.
  // The link counts as busy from the moment the message enters, even if a slower link before it
  // delivers the last byte later.
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
  bool uses_peer_memory_ = false;       // has steps that access peer memory; then the program runs
                                        // once, see pieces()
  int32_t slices_ = 1, simulated_ = 1;  // the first `simulated_` of all `slices_`
  double slice_bytes_ = 0;

  EventQueue events_;
  double now_ = 0, end_us_ = 0;
  // When all lanes had finished a slice, and the last slice that a lane had begun by then.
  struct SliceDone {
    double at_us = 0;
    int32_t begun = 0;
  };
  std::vector<SliceDone> slices_done_;
  std::vector<int32_t> lanes_left_;  // per slice, lanes that have not finished it
  int32_t begun_ = 0;
  int period_ = 1;          // in slices, of the estimate; 0: none was found
  double busiest_us_ = 0;   // the busiest link's time per slice; no slice takes less
  double given_up_us_ = 0;  // the estimate, if it is far beyond options_.beyond_us
  double pace_us_ = 0;      // per slice, of the estimate
  int32_t last_span_ = -1;
  std::vector<LinkState> links_;
  std::vector<StepPlan> plans_;
  std::vector<Wait> waits_;  // per step: steps of other lanes, FIFOs to take from, FIFOs to send to
  std::vector<FifoState> fifos_;
  std::vector<LaneState> lanes_;
  Slots<Message> messages_;
  Slots<Piece> pieces_;
  std::vector<int32_t> woken_;  // scratch of end_step()
  std::vector<StepSpan> spans_;
  std::vector<LinkSpan> transfers_;
};

}  // namespace weft
