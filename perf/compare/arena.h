// Buffers of one kind of memory, and a contest on them: timing and verification.
#pragma once

#include <array>
#include <memory>

#include "perf/compare/contests.h"

namespace weft::perf {

// Send and receive buffers of one kind of memory.
class Arena {
 public:
  enum class Memory { kMalloc, kNccl };
  Arena(Memory memory, size_t bytes);

  float* send() const { return static_cast<float*>(send_.get()); }
  float* recv() const { return static_cast<float*>(recv_.get()); }
  // Input into send, poison into recv. On rank 0 recv gets the input of an in-place broadcast.
  void write_input(const Job& job, const Extent& extent) const;

 private:
  using MemoryPtr = std::unique_ptr<void, void (*)(void*)>;
  static MemoryPtr allocate(Memory memory, size_t bytes);
  MemoryPtr send_;
  MemoryPtr recv_;
};

enum Contender { kMpi, kWeftMalloc, kWeftMemAlloc, kContenders };

struct Outcome {
  size_t bytes = 0;                      // size of the larger buffer
  std::array<double, kContenders> us{};  // medians
  long long wrong = 0;                   // over all ranks and contenders
};

// All ranks call it together. The contenders alternate `repetitions` times.
Outcome compete(const Contest& contest, const Job& job, const Arena& malloced, const Arena& nccl,
                size_t bytes, int repetitions);

}  // namespace weft::perf
