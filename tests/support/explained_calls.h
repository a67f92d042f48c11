// Calls on an emulated machine (WEFT_TOPO), on GPUs or in host mode: what `weft explain` says of
// them beforehand is compared with the timeline of WEFT_TRACE. The ranks of each host are processes
// of their own (NCCL_HOSTID), and the plugin "tiny11" stands for the machine's NICs.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "nccl.h"
#include "tests/support/case.h"

namespace weft::test {

struct EmulatedMachine {
  std::string topo;
  int ranks = 0, hosts = 1;
  bool on_gpus = false;
  std::string nics;  // of a host, with commas
  int host_of(int rank) const { return rank * hosts / ranks; }
};

// The five collectives, each with a small array, a medium one and a large one.
std::vector<Case> explained_cases(int nranks);

class ExplainedCalls {
 public:
  // Asks `weft explain` (WEFT_COMMAND) for every case. Explain and ranks share a new cache folder.
  explicit ExplainedCalls(const EmulatedMachine& machine);
  ~ExplainedCalls();
  ExplainedCalls(const ExplainedCalls&) = delete;
  ExplainedCalls& operator=(const ExplainedCalls&) = delete;

  // Runs `scenario` in a process per rank. It makes the calls of explained_cases(), and no others.
  // Before that it compares names by expect_plans().
  void run(const char* scenario) const;
  // Plans, paths, lanes, thread blocks, ports and NICs.
  void expect_that_they_ran() const;

 private:
  struct Answer;
  std::map<std::string, std::string> environment(int rank) const;
  Answer explained(const Case& c) const;

  const EmulatedMachine machine_;
  std::string folder_, trace_;
  std::vector<Answer> answers_;
};

// In a scenario: weftPlanOf() names the plans that explain named. `argument`: the scenario's.
void expect_plans(ncclComm_t comm, const std::string& argument);

}  // namespace weft::test
