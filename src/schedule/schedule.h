// The Schedule: for every rank, which lane moves or reduces which chunk, from where to where, after
// which steps. Plain data. Generators, synthesis and import make it. Executors run it only after
// verify() has accepted it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/schedule/codec.h"
#include "src/schedule/collective.h"

namespace weft {

enum class Buffer : uint8_t { kInput, kOutput, kScratch };

// One end of a step: a chunk of a local buffer, the FIFO from or to a peer on a channel, or a chunk
// of a peer's buffer, read or written in place. A message may be coded (Schedule::codecs). A coded
// chunk of a local buffer is used as receivers of a coded message would see it: decoded again.
struct Operand {
  enum class Kind : uint8_t { kLocal, kPeer, kRemote };
  Kind kind = Kind::kLocal;
  Buffer buffer = Buffer::kInput;
  int16_t channel = 0;  // kPeer: of the FIFO
  int32_t index = 0;    // first chunk; kPeer: the peer's rank
  int32_t owner = -1;   // kRemote: rank that owns the buffer
  uint8_t codec = 0;    // 0: none; n: Schedule::codecs[n - 1]

  static Operand local(Buffer buffer, int index) { return {Kind::kLocal, buffer, 0, index}; }
  static Operand input(int index) { return local(Buffer::kInput, index); }
  static Operand output(int index) { return local(Buffer::kOutput, index); }
  static Operand scratch(int index) { return local(Buffer::kScratch, index); }
  static Operand peer(int rank, int channel = 0) {
    return {Kind::kPeer, Buffer::kInput, static_cast<int16_t>(channel), rank};
  }
  static Operand remote(int owner, Buffer buffer, int index) {
    return {Kind::kRemote, buffer, 0, index, owner};
  }
  Operand coded(uint8_t with) const {
    Operand operand = *this;
    operand.codec = with;
    return operand;
  }
  bool operator==(const Operand&) const = default;
};

// A step of another lane of the same rank that must be complete first.
struct Dependency {
  int32_t lane = 0, step = 0;
  bool operator==(const Dependency&) const = default;
};

// Takes `count` chunks from every source. Reduces them in the order given if there are several.
// Writes the result to every destination. MSCCL's types are special cases: s = {local} -> {peer},
// rcs = {peer} -> {local, peer}, rrc = {peer, local} -> {local}, re = {local, local} -> {local},
// nop = no operands. The general form also reduces from N peers and sends to M peers at once. A
// step of count 0 moves no data. It sends or receives tokens, with peers on one side only. A token
// orders earlier steps of one rank before later steps of another. Accesses to peer memory need
// that.
// Coded sources are decoded, the sum is in float, and coded destinations are encoded once. If the
// only source and a destination have the same codec, what came is passed on as it is.
struct Step {
  std::vector<Operand> from, to;
  int32_t count = 1;
  std::vector<Dependency> after;
  bool operator==(const Step&) const = default;
};

// Steps that run one after the other: a thread block on a GPU, a state machine on the host. Only
// one lane of a rank uses a FIFO (peer, channel) in each direction.
struct Lane {
  std::vector<Step> steps;
  bool operator==(const Lane&) const = default;
};

struct RankSchedule {
  int32_t scratch_chunks = 0;
  std::vector<Lane> lanes;
  bool operator==(const RankSchedule&) const = default;
};

// The links that a FIFO is meant to cross, in order, on the machine the schedule was made for.
// Without a hint the simulator takes the widest path. Connections between hosts take the NICs of
// the route (src/planner/nic_plan.h). A hint does not change what the schedule computes.
struct RouteHint {
  int32_t from = 0, to = 0;  // ranks
  int16_t channel = 0;
  std::vector<int32_t> links;
  bool operator==(const RouteHint&) const = default;
};

// CPU nodes are extra ranks, numbered after the ranks of the collective. They are host memory and
// cores that run steps, without input or output. GPUs send to them; they reduce and send on.
inline constexpr int kMostCpuNodes = 8;

struct Schedule {
  std::string name;
  Collective collective;
  int32_t chunks = 1;     // chunks per block, see Collective
  int32_t cpu_nodes = 0;  // the last ones of `ranks`
  std::vector<RankSchedule> ranks;
  std::vector<RouteHint> routes;
  std::vector<CodecSpec> codecs;  // see Operand::codec
  bool operator==(const Schedule&) const = default;
};

}  // namespace weft
