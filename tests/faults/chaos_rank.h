// One process of a random run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "nccl.h"
#include "tests/faults/chaos_plan.h"
#include "tests/faults/chaos_wire.h"
#include "tests/faults/stage.h"

namespace weft::test {

class ChaosRank {
 public:
  ChaosRank(const ChaosPlan& plan, int rank, Stage& stage)
      : plan_(plan), rank_(rank), stage_(stage) {}
  // Failures are gtest's. Returns when this rank has no communicator any more.
  void play();

 private:
  // False: the call failed. It must return within the bound after the fault. `name` is that of the
  // communicator whose survivors must read one record; empty: there may be different ones.
  bool done(const std::string& what, const std::string& name,
            const std::function<ncclResult_t()>& call);
  ncclComm_t join(int number);  // nullptr: it failed
  void enter(ChaosPlan::Phase phase);
  void break_something();
  bool reads_the_record(const std::string& name) const;
  void expect_damage_was_found();
  bool run_calls(ncclComm_t comm, const std::string& name, int count, uint64_t salt);
  bool run_call(ncclComm_t comm, const std::string& name, uint64_t draw);
  void use(ncclComm_t comm);

  const ChaosPlan& plan_;
  const int rank_;
  Stage& stage_;
  std::unique_ptr<ChaosWire> wire_;  // of the victim, over verbs
  std::thread breaker_;              // of the victim: breaks something
};

}  // namespace weft::test
