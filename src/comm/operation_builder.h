// Makes the Operation of a call: its buffers, and the sizes of its chunks and slices.
#pragma once

#include "src/base/config.h"
#include "src/comm/call.h"
#include "src/exec/operation.h"
#include "src/schedule/program.h"

namespace weft {

// Partial sums of small floats could overflow in an average. Then the inputs are scaled, not the
// result.
Reduction scaled_if_partial(Reduction reduction, bool partial_sums);

// Immutable, so any thread may call.
class OperationBuilder {
 public:
  // `ring_bytes`: the size of a FIFO. `config` must outlive it.
  OperationBuilder(const Config& config, int nranks, bool one_host, uint64_t ring_bytes)
      : config_(config), nranks_(nranks), one_host_(one_host), ring_bytes_(ring_bytes) {}

  // Leaves out scratch memory, lending and ports. Throws Error if the plan's messages do not fit
  // into FIFOs, or the plan's chunks do not divide the count and must.
  Operation build(const Call& call, const Program& program, uint32_t tag) const {
    Operation operation;
    build(operation, call, program, tag);
    return operation;
  }
  // The same into a new operation. Copies of one would show in the time of small calls.
  void build(Operation& operation, const Call& call, const Program& program, uint32_t tag) const;

 private:
  void slice(Operation& operation, const Program& program) const;

  const Config& config_;
  const int nranks_;
  const bool one_host_;
  const uint64_t ring_bytes_;
};

}  // namespace weft
