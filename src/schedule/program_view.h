// The flat parts of a Program, as executors see them: plain structs for host and device.
#pragma once

#include <cstdint>

#include "src/schedule/codec.h"

namespace weft {

enum class ProgramBuffer : uint8_t { kInput, kOutput, kScratch, kPeer };

struct ProgramOperand {
  ProgramBuffer buffer = ProgramBuffer::kInput;
  uint8_t codec = 0;   // 0: none; n: codecs[n - 1]
  int16_t owner = -1;  // >= 0: the buffer of that peer
  int32_t index = 0;   // first chunk; for kPeer, the position in Program::receives or ::sends
};

struct ProgramDependency {
  uint32_t lane = 0, step = 0;
};

struct ProgramStep {
  uint64_t raw_sources = 0;  // see StepFacts
  uint32_t first_operand = 0, first_dependency = 0;
  uint16_t sources = 0, destinations = 0, dependencies = 0;
  // This many steps from here on may run in parallel. None writes memory that another touches, no
  // port is used twice, and no step that waits for a message delays a send.
  uint16_t run = 1;
  bool completes = false, lendable = false;
  bool coded = false;        // an operand has a codec
  bool only_sender = false;  // no other step of this rank uses the FIFOs that this one sends to
  int32_t count = 1;
  int32_t sub = 0;  // position of the first chunk in its block; gives its length in any buffer
};

struct ProgramLane {
  uint32_t first_step = 0, steps = 0;
};

// A FIFO end that this rank uses.
struct ProgramPort {
  int32_t peer = 0, channel = 0;
};

// Pointers into a Program on the host, or into its copy on a device.
struct ProgramView {
  const ProgramLane* lanes = nullptr;
  const ProgramStep* steps = nullptr;
  const ProgramOperand* operands = nullptr;
  const ProgramDependency* dependencies = nullptr;
  uint32_t lane_count = 0;
  int32_t chunks = 1;
  const CodecSpec* codecs = nullptr;
};

}  // namespace weft
