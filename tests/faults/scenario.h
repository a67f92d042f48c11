// A fault scenario: who takes part, what every rank does, and how long the end may take.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/faults/player.h"

namespace weft::test {

struct FaultScenario {
  const char* name;
  const char* what;  // for the table in docs/reliability.md
  int ranks = 2;
  void (*play)(Player& player) = nullptr;
  double bound_s = 2;              // from the fault to the end of every surviving call
  std::vector<int> victims = {};   // they may end in any way
  std::vector<const char*> hosts;  // NCCL_HOSTID per rank; empty: one host
  size_t bytes = 4096;             // of a call
  std::map<std::string, std::string> environment = {};
  bool slow = false;       // not part of the quick run
  bool one_record = true;  // all ranks that expect a failure read the same text
  // Its processes have one thread besides the library's. With GCC's TSan on x86-64 they have its
  // own, too.
  bool one_thread = false;
};

inline const std::vector<const char*> kOwnHosts = {"a", "b", "c", "d", "e", "f"};

std::vector<FaultScenario> death_scenarios();
std::vector<FaultScenario> exit_scenarios();
std::vector<FaultScenario> fork_scenarios();
std::vector<FaultScenario> user_error_scenarios();
std::vector<FaultScenario> lone_scenarios();
std::vector<FaultScenario> status_scenarios();
std::vector<FaultScenario> wire_scenarios();

}  // namespace weft::test
