// See one_round_shape.h.
#include "src/exec/one_round_shape.h"

#include <map>
#include <span>

namespace weft {
namespace {

constexpr int kMostRanks = 32;  // bits of a mask

// block = base + rank * step for every message, with step 0 or 1.
bool is_regular(const std::map<int, int>& blocks, int32_t& base, int32_t& step) {
  if (blocks.empty()) return true;
  const auto fits = [&](int32_t s) {
    base = blocks.begin()->second - blocks.begin()->first * s;
    step = s;
    for (const auto& [rank, block] : blocks)
      if (block != base + rank * s) return false;
    return true;
  };
  return fits(0) || fits(1);
}

uint32_t mask_of(const std::map<int, int>& blocks) {
  uint32_t mask = 0;
  for (const auto& [rank, block] : blocks) mask |= uint32_t{1} << rank;
  return mask;
}

class Reader {
 public:
  explicit Reader(const Program& program) : program_(program) {}

  std::optional<OneRoundShape> read() {
    if (program_.lanes.size() != 1 || program_.chunks != 1 || program_.scratch_chunks > 0 ||
        program_.collective.nranks > kMostRanks || program_.uniform_only)
      return std::nullopt;
    for (const ProgramStep& step : program_.steps)
      if (step.count != 1 || !add(step)) return std::nullopt;
    shape_.send_to = mask_of(sends_);
    if (!shape_.reduces) shape_.receive_from = mask_of(receives_);
    if (!is_regular(sends_, shape_.send_base, shape_.send_step)) return std::nullopt;
    if (!shape_.reduces && !is_regular(receives_, shape_.receive_base, shape_.receive_step))
      return std::nullopt;
    if (shape_.reduces && (shape_.copies_own || !receives_.empty())) return std::nullopt;
    return shape_;
  }

 private:
  bool add(const ProgramStep& step) {
    const std::span from(program_.operands.data() + step.first_operand, step.sources);
    const std::span to(program_.operands.data() + step.first_operand + step.sources,
                       step.destinations);
    for (const auto& operands : {from, to})
      for (const ProgramOperand& operand : operands)
        if (operand.owner >= 0) return false;
    if (from.size() == 1 && from[0].buffer == ProgramBuffer::kInput)
      return add_send(from[0].index, to);
    if (to.size() != 1 || to[0].buffer != ProgramBuffer::kOutput) return false;
    if (from.size() == 1) return add_receive(from[0], to[0].index);
    return add_sum(step, from, to[0].index);
  }

  // A rank sends all its messages before it waits for the first one.
  bool add_send(int32_t block, std::span<const ProgramOperand> to) {
    for (const ProgramOperand& operand : to) {
      if (operand.buffer == ProgramBuffer::kPeer) {
        const ProgramPort& port = program_.sends[static_cast<size_t>(operand.index)];
        if (received_ || port.channel != 0 || !sends_.emplace(port.peer, block).second)
          return false;
      } else if (operand.buffer == ProgramBuffer::kOutput && !shape_.copies_own) {
        shape_.copies_own = true;
        shape_.own_from = block;
        shape_.own_to = operand.index;
      } else {
        return false;
      }
    }
    return true;
  }

  bool add_receive(const ProgramOperand& from, int32_t block) {
    if (from.buffer != ProgramBuffer::kPeer) return false;
    received_ = true;
    const ProgramPort& port = program_.receives[static_cast<size_t>(from.index)];
    return port.channel == 0 && receives_.emplace(port.peer, block).second;
  }

  bool add_sum(const ProgramStep& step, std::span<const ProgramOperand> from, int32_t block) {
    if (shape_.reduces || !step.completes) return false;
    received_ = true;
    shape_.reduces = true;
    shape_.receive_base = block;
    int last = -1;
    for (size_t i = 0; i < from.size(); i++) {
      int rank = program_.rank;
      if (from[i].buffer == ProgramBuffer::kPeer) {
        const ProgramPort& port = program_.receives[static_cast<size_t>(from[i].index)];
        rank = port.peer;
        if (port.channel != 0 || (step.raw_sources >> i & 1) != 0) return false;
        shape_.receive_from |= uint32_t{1} << rank;
      } else if (from[i].buffer == ProgramBuffer::kInput) {
        if ((step.raw_sources >> i & 1) == 0) return false;
        shape_.sums_own = true;
        shape_.own_from = from[i].index;
      } else {
        return false;
      }
      if (rank <= last) return false;
      last = rank;
    }
    return true;
  }

  const Program& program_;
  OneRoundShape shape_;
  std::map<int, int> sends_, receives_;  // block by rank
  bool received_ = false;
};

}  // namespace

std::optional<OneRoundShape> one_round_shape(const Program& program) {
  return Reader(program).read();
}

}  // namespace weft
