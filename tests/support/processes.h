// Ranks as processes: the test program starts itself again, once per rank, and each copy plays one
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

// What a started process knows.
struct ProcessContext {
  int rank = 0;
  int nranks = 1;
  std::vector<ncclUniqueId> ids;  // made by the starting process
  std::string argument;           // whatever the test passes on
};

// A scenario is played by every started process; gtest's EXPECT_* work in it, and a failure makes
// the exit status 1. What it prints is shown if something fails.
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
  // How long the others, who may wait for it, go on once one has failed; else until the limit.
  std::optional<std::chrono::milliseconds> grace;
  std::string argument;
  int ids = 1;
  // Environment of one rank, on top of the inherited one.
  std::function<std::map<std::string, std::string>(int rank)> environment;
  // Calls `start` where the rank's process should be started, for example in another namespace.
  std::function<void(int rank, const std::function<void()>& start)> place;
};

// Every process its own host, so that they must talk over TCP (loopback).
std::map<std::string, std::string> separate_hosts(int rank);

struct ProcessResult {
  int exit_code = -1;  // -1 when ended by a signal
  int signal = 0;
  bool hung = false;  // did not end within the limit and was killed
  std::string output;
};

// Starts `n` processes and waits for them. Those alive at the limit are killed, by their ids.
std::vector<ProcessResult> run_processes(const std::string& scenario, int n,
                                         const ProcessOptions& options = {});

// The same, and every process must end with status 0; shows the output of those that do not. The
// grace is 20 s.
void run_ranks_as_processes(const std::string& scenario, int n, const ProcessOptions& options = {});

// In a scenario: the communicator of all ranks, destroyed at the end of fn.
void with_communicator(const ProcessContext& context, const std::function<void(ncclComm_t)>& fn);

// The same where NCCL_COMM_ID says at which address ranks meet.
void with_communicator_by_address(const ProcessContext& context,
                                  const std::function<void(ncclComm_t)>& fn);

// Called by main(): true if this process was started to play a scenario, with its exit status.
bool play_scenario(int* exit_code);

}  // namespace weft::test
