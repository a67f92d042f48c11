// One process of a random run whose survivors shrink and go on.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "nccl.h"
#include "tests/faults/chaos_device.h"
#include "tests/faults/stage.h"
#include "tests/faults/survival_plan.h"

namespace weft::test {

class Survivor {
 public:
  // On a GPU, or in host mode.
  Survivor(const SurvivalPlan& plan, int rank, Stage& stage, bool gpu);
  // Failures are gtest's. The victim of a kill does not return.
  void play();

 private:
  // One collective: where its data lies, what is expected.
  struct Call {
    Call(uint64_t from, size_t number, int n);
    uint64_t draw, kind;
    size_t count, slot;
    int root;
  };
  enum class Outcome { kDone, kFailed };

  int* input(const Call& call) const;
  int* output(const Call& call) const;
  void fill(const Call& call, int me, int n);
  void check(const Call& call, int me, int n);
  ncclResult_t launch(const Call& call, int me, int n, ncclComm_t comm, cudaStream_t stream) const;
  // Records the graphs of a communicator. Its ranks do so at the same time.
  void record(ncclComm_t comm, uint64_t salt);
  // Steps until one fails, or all are done. The fault comes in the first communicator's.
  Outcome run(ncclComm_t comm, int steps, uint64_t salt, bool with_fault);
  Outcome step(ncclComm_t comm, int number, uint64_t salt, bool with_fault);
  Outcome await_end(ncclComm_t comm);
  void strike();
  ncclComm_t join(int number);
  // After the death: the record of it, and a communicator without the dead.
  void expect_notice(ncclComm_t comm);
  ncclComm_t shrink(ncclComm_t comm);
  void go_on_without_the_dead(ncclComm_t comm);
  int alive() const { return plan_.stops ? plan_.ranks : plan_.ranks - 1; }

  const SurvivalPlan& plan_;
  const int rank_;
  Stage& stage_;
  std::unique_ptr<ChaosDevice> device_;
  std::vector<std::vector<Call>> graphs_;
  std::thread breaker_;  // of the victim
};

}  // namespace weft::test
