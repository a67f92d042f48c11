// One rank's part of a verified schedule as the lane kernel wants it. What can be resolved before a
// call is resolved here. Host code without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/exec/cuda/lane_program.h"
#include "src/schedule/verify.h"

namespace weft::cuda {

// A port before the ranks' memory is known.
struct LaneImagePort {
  int32_t peer = 0;
  uint32_t position = 0, credit_position = 0;  // as in LanePort
  uint32_t per_iteration = 0;
  bool straight = false;  // likewise
};

struct LaneImage {
  Collective collective;
  int32_t rank = 0;
  int32_t chunks = 1;
  bool uniform_only = false;
  bool partial_sums = false;  // see Program
  // Equal on all ranks: of the rank that needs most.
  int32_t scratch_chunks = 0, step_chunks = 1, fifo_depth = 2;
  uint32_t most_lanes = 1;        // of a rank
  uint32_t most_ports = 0;        // of a rank, in one direction
  uint32_t most_messages = 0;     // of a port, in an iteration
  std::vector<uint64_t> weights;  // see weights_of_heaviest()
  // Of a lane in long calls, see balanced_instances(); 0: as many as there are blocks for.
  uint32_t instances = 0;
  bool all_coded = false;  // every message has a codec
  bool lends = false;      // some message may be lent
  bool simple = true;      // all steps are: LaneStep::simple
  // Of the messages that this rank receives, for reports.
  uint64_t straight_messages = 0, messages = 0;

  struct Lane {
    uint32_t number = 0;  // in the schedule
    bool alone = false;   // the rank has no other
    std::vector<LaneStep> steps;
    std::vector<LaneOperand> operands;
    std::vector<LaneDependency> dependencies;
    std::vector<LaneImagePort> receives, sends;
  };
  std::vector<Lane> lanes;        // the heaviest first
  std::vector<CodecSpec> codecs;  // see ProgramOperand::codec

  size_t steps() const;
};

// The lane as the kernel reads it. `port` fills in a port.
using FillPort = std::function<LanePort(const LaneImagePort& port, bool receives)>;
std::vector<std::byte> write_lane(const LaneImage::Lane& lane, const LaneHead& head,
                                  const FillPort& port);
// All of them, each in the room of the largest, `lane_bytes`. `resolved_bytes`: see LaneArguments.
std::vector<std::byte> join_lanes(const std::vector<std::vector<std::byte>>& lanes,
                                  uint32_t& lane_bytes, uint32_t& resolved_bytes);

std::vector<LaneSize> lane_sizes(const std::vector<std::vector<std::byte>>& lanes);

// Why kernels cannot run a schedule with these codecs; empty: they can.
std::string unfit_for_lanes(const std::vector<CodecSpec>& codecs);

// Whether a rank is on another host than this one.
using Apart = std::function<bool(int rank)>;

// `also`: another proof of the schedule, by which some rank may run it. `straight`: messages may go
// straight to their place, as far as both proofs allow. `apart`: empty if no rank is; messages to
// ranks that are may be lent. Throws Error if no kernel can run it.
LaneImage lane_image(const VerifiedSchedule& verified, const VerifiedSchedule* also, int rank,
                     int fifo_depth, bool straight, const Apart& apart = {});

// Steps of several chunks take a round for each. In calls whose chunks lie one after the other
// (chunks_are_whole()) they are moved as one: makes such steps simple. False: there are none.
// `leaders`: the most operands of a simple step.
inline constexpr uint32_t kLeaders = 32;  // threads of a warp
bool lay_end_to_end(LaneImage& image, uint32_t leaders = kLeaders);

// Whether some lane sends to a rank.
bool sends_to(const LaneImage& image, int peer);

}  // namespace weft::cuda
