// One rank's part of a collective on data with known contents: where its buffers lie, what they
// hold before the call, and what they must hold after it. For `weft run` and schedule_perf.
#pragma once

#include <cstdint>
#include <span>

#include "src/comm/call.h"

namespace weft {

// Sums of uint32. Buffers lie in one piece of memory, counted in elements. Immutable.
class PlayedCall {
 public:
  PlayedCall(const Collective& collective, int rank, uint64_t count, bool in_place);

  // As in nccl-tests, sizes are rounded down to a multiple that divides evenly: elements per block
  // of an array of `bytes`. `chunks`: they must divide it, too; 1: any count will do.
  static uint64_t count_for(const Collective& collective, uint64_t bytes, uint64_t chunks);

  const Collective& collective() const { return collective_; }
  uint64_t elements() const { return elements_; }
  uint64_t outputs() const { return outputs_; }
  uint64_t output_at() const { return output_at_; }
  // With buffers in `memory`, of so many elements.
  Call call(uint32_t* memory) const;
  // What elements from `first` on hold before the call.
  void fill(uint64_t first, std::span<uint32_t> piece) const;
  // How many outputs among the elements from `first` on are wrong after it.
  uint64_t count_wrong(uint64_t first, std::span<const uint32_t> piece) const;

 private:
  uint64_t count_wrong_in_block(int block, uint64_t first, std::span<const uint32_t> piece) const;

  const Collective collective_;
  const int rank_;
  const uint64_t count_, inputs_, outputs_;
  uint64_t input_at_ = 0, output_at_ = 0, elements_ = 0;
};

// Plays calls of one rank, in the memory of its executor. Errors are thrown.
class Player {
 public:
  virtual ~Player() = default;
  // From now on the others mean this call. It must outlive its use.
  virtual void take(const PlayedCall& call) = 0;
  virtual Call call() = 0;
  virtual void fill() = 0;
  // To its end.
  virtual void run() = 0;
  virtual uint64_t count_wrong() = 0;
};

}  // namespace weft
