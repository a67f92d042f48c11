// Ranks as processes. The test program starts itself once per rank, and each copy plays one
// scenario.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nccl.h"

namespace weft::test {

// The context of a started process.
struct ProcessContext {
  int rank = 0;
  int nranks = 1;
  std::vector<ncclUniqueId> ids;  // from the process that starts the ranks
  std::string argument;           // passed on by the test
};

// Every started process plays a scenario. gtest's EXPECT_* work in it, and a failure makes the exit
// status 1. Its output is shown if something fails.
using Scenario = void (*)(const ProcessContext&);

struct RegisterScenario {
  RegisterScenario(const char* name, Scenario scenario);
};

#define WEFT_SCENARIO(name)                                                            \
  static void scenario_##name(const ::weft::test::ProcessContext& context);            \
  static const ::weft::test::RegisterScenario register_##name(#name, scenario_##name); \
  static void scenario_##name([[maybe_unused]] const ::weft::test::ProcessContext& context)

struct ProcessOptions {
  std::chrono::milliseconds limit = std::chrono::seconds(60);
  // How long the others go on after a process failed; without it, until the limit.
  std::optional<std::chrono::milliseconds> grace;
  std::string argument;
  int ids = 1;
  // Environment of one rank, on top of the inherited one.
  std::function<std::map<std::string, std::string>(int rank)> environment;
  // Calls `start` in the place where the rank's process should start, such as another namespace.
  std::function<void(int rank, const std::function<void()>& start)> place;
};

// Makes every process its own host, so that ranks must talk over TCP (loopback).
std::map<std::string, std::string> separate_hosts(int rank);

struct ProcessResult {
  int exit_code = -1;  // -1 when ended by a signal
  int signal = 0;
  bool hung = false;  // still running at the limit, and killed
  std::string output;
};

// Starts `n` processes and waits for them. Kills the processes that are alive at the limit, by id.
std::vector<ProcessResult> run_processes(const std::string& scenario, int n,
                                         const ProcessOptions& options = {});

// The same, and every process must end with status 0. Shows the output of a process that does not.
// The grace is 20 s.
void run_ranks_as_processes(const std::string& scenario, int n, const ProcessOptions& options = {});

// In a scenario: the communicator of all ranks, destroyed at the end of fn.
void with_communicator(const ProcessContext& context, const std::function<void(ncclComm_t)>& fn);

// The same, but ranks meet at the address in NCCL_COMM_ID.
void with_communicator_by_address(const ProcessContext& context,
                                  const std::function<void(ncclComm_t)>& fn);

// Called by main(): true if this process was started to play a scenario, with its exit status.
bool play_scenario(int* exit_code);

}  // namespace weft::test
