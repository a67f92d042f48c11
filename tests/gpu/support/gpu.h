// What every GPU test stands on: CUDA calls that throw, streams made once, and a fixture that ends
// a test that hangs.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>

#include "tests/support/watchdog.h"

namespace weft::test {

// Throws std::runtime_error with `what` and CUDA's own text.
void cuda_ok(cudaError_t error, const char* what);
#define WEFT_CUDA(call) ::weft::test::cuda_ok((call), #call)

// "" or why GPU tests cannot run here.
std::string gpu_missing();
// "" or why processes cannot share the GPU here: tests/gpu/mps.sh starts the daemon.
std::string mps_missing();

// Non-blocking streams, made at the first call and kept: making them while a kernel waits for a
// peer could deadlock. There are as many as hardware queues.
inline constexpr size_t kStreams = 32;
cudaStream_t stream_number(size_t number);

// Uses those that have not been, for every kind of work, while all of them are busy; nothing else
// may be on the device. CUDA deals out hardware queues when streams are first used, badly where
// ranks come at once (src/exec/stream_gate.h), and the library can see to its own launches only,
// not to a test's copies and graphs.
void use_at_once(std::span<const cudaStream_t> streams);

// Waits for a stream without blocking in the driver, so that a hang becomes "" + a text. Empty if
// it finished in time.
std::string finish_within(cudaStream_t stream, std::chrono::milliseconds limit);

// Ends the program with the test's name when a test takes longer than `limit`; afterwards the
// device must be idle and no CUDA error left behind.
class GpuTest : public testing::Test {
 protected:
  explicit GpuTest(std::chrono::milliseconds limit = std::chrono::seconds(25));
  void TearDown() override;

 private:
  Watchdog watchdog_;
};

}  // namespace weft::test
