// A batch: the operations that one call (or one group) launches together. The calling thread drives
// them to completion. Worker threads help if there is enough to do.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "include/nccl.h"
#include "src/base/trace.h"
#include "src/exec/activity.h"
#include "src/exec/call_history.h"
#include "src/exec/host/network_driver.h"
#include "src/exec/host/turns.h"
#include "src/exec/message_counts.h"
#include "src/exec/operation.h"
#include "src/exec/operation_observer.h"

namespace weft::host {

// One rank of a communicator as the executor sees it. Outlives every batch that uses it.
struct RankContext {
  int rank = 0;
  std::string label;              // its name in messages: "rank 3 of 8"
  std::string place;              // its communicator, host and process, for messages
  Doorbell* door = nullptr;       // the rank sleeps here
  std::atomic<uint32_t> stop{0};  // nonzero: every wait ends (abort, or a fault found elsewhere)
  std::atomic<bool>* gone = nullptr;       // per peer: it has left the communicator
  double timeout_s = 0;                    // 0: none
  double stall_warning_s = 30;             // 0: none
  trace::Track track;                      // for WEFT_TRACE
  int local_ranks = 1;                     // ranks of the communicator that share this host's cores
  uint64_t longest_sleep_ns = 50'000'000;  // less if peers ring no bell
  int cpu_nodes_from = std::numeric_limits<int>::max();  // peers from this number on are CPU nodes
  // What is known of a peer's process, for messages; may be empty.
  std::function<std::string(int peer)> about_peer;
  std::function<void()> stalls;  // called when the rank has waited long; may be empty
  std::atomic<Priority> priority{Priority::kNormal};
  CallHistory history;  // for comparisons with peers
  MessageCounts messages;
  OperationObserver* observer = nullptr;  // nullptr: none
  Activity activity;
};

// An operation with its running state. A Batch creates it. Its vectors keep their memory between
// calls.
class Task {
 public:
  Operation operation;
  RankContext* context = nullptr;
  const Task* after = nullptr;  // if set, this task starts when that one is complete
  // Words of the caller; nullptr: none. The task starts when `ready` is not 0. When it is complete,
  // `done_words` words from `done` on become 1, one after the other.
  const uint32_t* ready = nullptr;
  uint32_t* done = nullptr;
  uint32_t done_words = 1;
  std::vector<SendPort*> sends;
  std::vector<RecvPort*> receives;
  std::vector<IrregularBlock> inputs, outputs;  // memory for those of the operation
  const void* call = nullptr;                   // the observer's name for it
  const char* plan = nullptr;                   // for traces, as in trace::Span
  const char* means = nullptr;                  // likewise

 private:
  friend class Batch;
  struct LaneSlot {
    LaneState state;
    std::atomic<bool> taken{false};
    bool done = false;
    int64_t blocked_since = 0;  // for traces; 0: not blocked
  };
  std::unique_ptr<LaneSlot[]> lanes_;
  size_t lane_room_ = 0;
  bool plain_ = false;  // PlainTarget will do
  size_t lane_count_ = 0;
  std::vector<uint64_t> progress_;
  std::atomic<uint32_t> unfinished_{0};  // lanes, and 1 for the end of the task
  int64_t began_ = 0;                    // for traces
};

struct Outcome {
  ncclResult_t code = ncclSuccess;
  std::string text;
  const Task* culprit = nullptr;
};

// Not thread-safe: one thread fills and runs a batch. Workers join only inside run().
class Batch {
 public:
  Task& add();
  void clear() { used_ = 0; }
  bool empty() const { return used_ == 0; }

  // Returns when all tasks are complete, or one failed or was stopped. Up to `helpers` threads of
  // the pool join in.
  Outcome run(size_t helpers);

 private:
  friend class WorkerPool;
  enum class Pass { kProgress, kIdle };
  void prepare(Task& task);
  Pass pass(size_t start);
  bool sweep(size_t start, const Priority* only);
  bool drive(Task& task, Task::LaneSlot& slot);
  static bool may_run(const Task& task);
  void finish(Task& task);
  static Advance advance(const Task& task, Task::LaneSlot& slot);
  // The interpreter's advance(), recorded in the timeline.
  static Advance advance_traced(Task& task, Task::LaneSlot& slot);
  static void trace_operation(const Task& task);
  [[gnu::cold]] static void tell_observer(const Task& task);
  bool finished() const { return unfinished_tasks_.load(std::memory_order_acquire) == 0; }
  // After this long it is worth asking the others what they do. Again after twice as long.
  static constexpr double kStallsS = 1;
  // How long nothing has moved.
  struct Idle {
    uint32_t passes = 0;
    std::chrono::steady_clock::time_point since, looked;
    bool warned = false;
    double tell_s = kStallsS;  // when RankContext::stalls is called next
    bool peer_gone = false;    // and nothing more can come from it, as of the last look
    bool noted = false;        // the ranks' activities say that they wait
  };
  void wait(Idle& idle);
  void check_stop();
  static Activity::Begin operation_of(const Task& task);
  [[gnu::cold]] void note_waits(Idle& idle);
  [[gnu::cold]] void tell_stalls();
  [[gnu::cold]] void note_progress(Idle& idle);
  static Outcome failure_of(const Task& task, const LaneState& lane);
  void report_failure(Outcome outcome);
  static std::string about_peer(const Task& task, const LaneState& lane);
  bool report_network_fault(const Task& task, const LaneState& lane, const Idle& idle);
  std::string describe_wait(const Task& task, const LaneState& lane, const Idle& idle) const;
  [[gnu::cold]] const Task* first_unfinished(LaneState& lane);
  [[gnu::cold]] const Task* first_not_ready() const;
  void report_not_ready(Idle& idle, const Task& task, double seconds);
  [[gnu::cold]] bool find_wait(Task& task, LaneState& lane);
  [[gnu::cold]] static bool is_over(const Task& task, const LaneState& lane, double seconds);
  void take_back();

  std::vector<std::unique_ptr<Task>> tasks_;  // pointers to tasks stay valid
  size_t used_ = 0;
  NetworkDriver network_;
  std::atomic<size_t> unfinished_tasks_{0};
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> helpers_{0};
  size_t most_helpers_ = 0;
  Turn turn_;
  bool mixed_ = false;                // its tasks have different classes
  std::atomic<uint32_t> skipped_{0};  // passes in a row without lower classes
  bool single_rank_ = true;
  bool helped_ = false;
  Outcome outcome_;
  std::atomic<bool> outcome_taken_{false};
};

}  // namespace weft::host
