// The base of every GPU test: CUDA calls that throw, streams made once, and a fixture that ends a
// test that hangs.
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

// "" or the reason why GPU tests cannot run here.
std::string gpu_missing();
// "" or the reason why processes cannot share the GPU here. tests/gpu/mps.sh starts the daemon.
std::string mps_missing();

// Non-blocking streams, made at the first call and kept. Making a stream while a kernel waits for a
// peer could deadlock. There are as many streams as hardware queues.
inline constexpr size_t kStreams = 32;
cudaStream_t stream_number(size_t number);

// Uses the streams that are still unused, for every kind of work, while all of them are busy. The
// device must be idle otherwise. CUDA assigns a hardware queue when a stream is first used, and
// assigns badly if ranks do that at the same time (src/exec/stream_gate.h). The library can only
// order its own launches, not a test's copies and graphs.
void use_at_once(std::span<const cudaStream_t> streams);

// Waits for a stream without blocking in the driver, so that a hang becomes an error text. "" if
// the stream finished in time.
std::string finish_within(cudaStream_t stream, std::chrono::milliseconds limit);

// Ends the program with the test's name when a test takes longer than `limit`. After a test the
// device must be idle and no CUDA error may be left.
class GpuTest : public testing::Test {
 protected:
  explicit GpuTest(std::chrono::milliseconds limit = std::chrono::seconds(25));
  void TearDown() override;

 private:
  Watchdog watchdog_;
};

}  // namespace weft::test
