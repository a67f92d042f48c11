// See stream_traffic.h.
#include "src/exec/host/stream_traffic.h"

#include <algorithm>

#include "src/exec/host/target.h"
#include "src/exec/interpreter.h"

namespace weft::host {
namespace {

void add(std::vector<StreamTraffic>& traffic, const NetStream* stream, uint64_t messages,
         uint64_t bytes) {
  if (stream == nullptr) return;
  auto it = std::find_if(traffic.begin(), traffic.end(),
                         [&](const StreamTraffic& entry) { return entry.stream == stream; });
  if (it == traffic.end()) it = traffic.insert(it, {stream, 0, 0});
  it->messages += messages;
  it->largest = std::max(it->largest, bytes);
}

}  // namespace

std::vector<StreamTraffic> stream_traffic(const Operation& operation) {
  HostTarget target;
  const Interpreter<HostTarget> interpreter(operation, target);
  const ProgramView& program = operation.program;
  std::vector<StreamTraffic> traffic;
  for (uint32_t l = 0; l < program.lane_count; l++) {
    const ProgramLane& lane = program.lanes[l];
    for (uint32_t s = 0; s < lane.steps; s++) {
      const ProgramStep& step = program.steps[lane.first_step + s];
      const uint64_t bytes = interpreter.message_bytes(step, 0);  // no slice is larger
      // Empty messages are sent too, so every iteration sends one message per peer operand.
      for (uint32_t i = 0; i < static_cast<uint32_t>(step.sources + step.destinations); i++) {
        const ProgramOperand& operand = program.operands[step.first_operand + i];
        if (operand.buffer != ProgramBuffer::kPeer) continue;
        add(traffic,
            i < step.sources ? operation.receives[operand.index]->stream
                             : operation.sends[operand.index]->stream,
            interpreter.iterations(lane), interpreter.operand_bytes(step, operand, 0, bytes));
      }
    }
  }
  return traffic;
}

}  // namespace weft::host
