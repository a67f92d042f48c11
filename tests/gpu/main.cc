// main() of the GPU tests. It plays a scenario if the process was started for one. It exits with 77
// (skipped) if there is no GPU.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/gpu/support/gpu.h"
#include "tests/support/crash_trace.h"
#include "tests/support/processes.h"
#include "tests/support/require.h"

int main(int argc, char** argv) {
  // One hardware queue per stream, for kernels and for copies. CUDA reads it at its first call.
  // Processes under MPS share the hardware queues.
  const char* queues = std::getenv("WEFT_TEST_MPS") == nullptr ? "32" : "4";
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 0);
  setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", queues, 0);
  weft::test::trace_crashes();
  testing::InitGoogleTest(&argc, argv);
  if (int exit_code = 0; weft::test::play_scenario(&exit_code)) return exit_code;
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  if (const std::string reason = weft::test::gpu_missing(); !reason.empty()) {
    const bool required = weft::test::is_required("gpu");
    std::printf("%s: %s\n", required ? "FAILED: WEFT_REQUIRE names 'gpu', but" : "SKIPPED",
                reason.c_str());
    return required ? 1 : 77;
  }
  return RUN_ALL_TESTS();
}
