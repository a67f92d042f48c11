// Inside weave(), first stage: which transfers travel as one message, through which FIFO.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/synth/weave/weave_plan.h"

namespace weft {

// In the intended order of sending.
struct WovenMessage {
  int32_t fifo = 0, first = 0, count = 1;
  int32_t source = -1;  // the FIFO that brings its first piece, -1: the rank's own
  int32_t parent = -1;  // the message or start that brought exactly these pieces, -1: several
  int32_t due = -1;     // the first message that needs these pieces, -1: none
  bool fused = false;   // the step that receives the parent sends it; set by choose_lanes()
  bool own() const { return source < 0; }
};

// Pieces that a rank has from the start and sends alike.
struct WovenStart {
  int32_t rank = 0, first = 0, count = 1;
  int32_t lane = 0;  // set by choose_lanes()
};

struct WovenMessages {
  std::vector<WovenFifo> fifos;
  std::vector<WovenMessage> messages;  // parents before children
  std::vector<WovenStart> starts;
};

// Throws Error(ncclInvalidUsage) for transfers that no schedule can follow.
WovenMessages form_messages(const Pieces& pieces, const std::vector<Transfer>& transfers,
                            const LaneOptions& options);

}  // namespace weft
