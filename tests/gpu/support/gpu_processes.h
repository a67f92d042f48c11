// The fixture of tests whose ranks are processes that share the GPU.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>

#include "tests/gpu/support/gpu.h"
#include "tests/support/case.h"
#include "tests/support/processes.h"
#include "tests/support/require.h"

namespace weft::test {

using Environment = std::map<std::string, std::string>;

inline Case plain(Operation operation, size_t count) {
  Case c;
  c.operation = operation;
  c.count = count;
  return c;
}

// Skips the test if processes cannot share the GPU.
class GpuProcesses : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = mps_missing(); !reason.empty()) WEFT_SKIP("mps", reason);
  }
  static void play(const char* scenario, int n, const std::string& argument = "",
                   const Environment& environment = {},
                   std::chrono::seconds limit = std::chrono::seconds(40)) {
    ProcessOptions options;
    options.limit = limit;
    options.argument = argument;
    options.environment = [&](int) { return environment; };
    run_ranks_as_processes(scenario, n, options);
  }
};

}  // namespace weft::test
