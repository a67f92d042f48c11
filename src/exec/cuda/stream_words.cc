// Words of the caller that a launch waits for or sets: operations of the stream, no kernels.
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/driver.h"
#include "src/exec/cuda/gpu_state.h"

namespace weft::cuda {
namespace {

void check_word(CUresult result, const char* what, const void* word) {
  if (result == CUDA_SUCCESS) return;
  fail(ncclUnhandledCudaError, "{} {}: CUDA error {}; the word must be memory that the GPU reaches",
       what, word, static_cast<int>(result));
}

}  // namespace

void GpuExecutor::wait_word(const uint32_t* word) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  static const auto wait = driver<decltype(cuStreamWaitValue32)>("cuStreamWaitValue32");
  check_word(wait == nullptr ? CUDA_ERROR_NOT_SUPPORTED
                             : wait(s.order->stream(), reinterpret_cast<CUdeviceptr>(word), 1,
                                    CU_STREAM_WAIT_VALUE_GEQ),
             "waiting for the ready word", word);
  s.order->forbid_early_start();
  s.order->launched(false);
}

// When the value is visible, all earlier work of the stream is done and visible.
void GpuExecutor::write_word(uint32_t* word) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  static const auto write = driver<decltype(cuStreamWriteValue32)>("cuStreamWriteValue32");
  check_word(write == nullptr ? CUDA_ERROR_NOT_SUPPORTED
                              : write(s.order->stream(), reinterpret_cast<CUdeviceptr>(word), 1,
                                      CU_STREAM_WRITE_VALUE_DEFAULT),
             "setting the done word", word);
  s.order->forbid_early_start();
  s.order->launched(false);
}

}  // namespace weft::cuda
