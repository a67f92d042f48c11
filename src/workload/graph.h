// A workload: the operations of a training step, in the order in which ranks issue them. Compute
// has a given time; collectives have bytes and a group. Plain data. graph_json.h reads it, passes
// rewrite it, check.h says whether a graph is one.
//
// Ranks run the same list. An operation belongs to the ranks of its place or group. A stream of a
// rank runs its operations in the order of the list, as CUDA streams do. An operation also waits
// for those in `after` that share a rank with it: only communication crosses ranks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/workload/comm_cost.h"

namespace weft::workload {

enum class Phase : uint8_t {
  kForward,
  kInputGradient,   // dX
  kWeightGradient,  // dW
  kGradient,        // synchronizes gradients
  kOptimizer,
  kParameter,  // gathers parameters
  kExtra,      // may run in bubbles
};
inline constexpr int kPhases = 7;
std::string_view name_of(Phase phase);

// What an operation of a rewritten graph does of the original ones: the part from `low` to `high`
// of operation `origin`. If a collective became a sequence of others, `stage` counts them.
struct Share {
  int origin = 0;
  double low = 0, high = 1;
  int stage = 0;
};

struct Op {
  std::string id;
  std::optional<CollectiveKind> collective;  // none: compute
  double us = 0;  // of compute; of a collective its measured time alone, 0: the simulator says it
  double bytes = 0;  // of a collective: of the whole array, as in nccl-tests
  int place = 0;     // of compute: index of Graph::places
  int group = -1;    // of a collective: index of Graph::groups
  std::vector<int> after;
  std::string stream;
  int layer = -1, microbatch = -1;
  Phase phase = Phase::kForward;
  int priority = 0;     // of a collective: higher ones have the links first
  int sms = -1;         // multiprocessors that a collective takes; -1: Graph::comm_sms
  std::string axis;     // the operation can be cut along it; operations of one axis part by part
  double floor_us = 0;  // the least time of a part of compute
  double context = 0;   // the share of compute that grows with what comes before on the axis
  // Of a collective: this is a part of one call, as weftPartitioned() makes it. Parts follow each
  // other without the latency of a call.
  int part = 0, parts = 1;
  double call_bytes = 0;  // of all parts together
  int root = 0;
  int line = 0;         // in the file; 0: none
  bool staged = false;  // a stage of a collective that was replaced
  std::vector<Share> shares;
};

struct Group {
  std::string name;
  Instances instances;
};

inline constexpr const char* kComputeStream = "compute";
inline constexpr const char* kCommStream = "comm";
// Waits for the host, or for room on the GPU: nothing is computed. Also "host-" and a stream that
// waits.
inline constexpr const char* kHostStream = "host";
inline bool is_host_stream(std::string_view stream) { return stream.starts_with(kHostStream); }

struct Graph {
  std::string name, source;
  int nranks = 1;
  int sms = 0;          // multiprocessors of a GPU; 0: communication does not slow compute
  int comm_sms = 0;     // that a collective takes
  double split_us = 0;  // that every cut adds to a compute operation
  int batch = 0;        // sequences that attention may be cut into; 0: not known
  std::vector<std::vector<int>> places;  // sets of ranks; the first is all ranks
  std::vector<Group> groups;
  std::vector<Op> ops;
};

// Finds or adds.
int place_of(Graph& graph, const std::vector<int>& ranks);
int group_of(Graph& graph, const std::string& name, const Instances& instances);

// Ranks that behave alike: they have the same places and groups. Each rank is in one actor.
struct Actors {
  std::vector<std::vector<int>> ranks;               // per actor
  std::vector<std::vector<int>> of_place, of_group;  // actors, sorted
  const std::vector<int>& of(const Op& op) const {
    return op.collective ? of_group[static_cast<size_t>(op.group)]
                         : of_place[static_cast<size_t>(op.place)];
  }
};
Actors actors_of(const Graph& graph);

// Every operation stands for itself: the origin of rewritings.
void set_origins(Graph& graph);

}  // namespace weft::workload
