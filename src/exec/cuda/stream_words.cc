// Words of the caller that a launch waits for or sets: operations of the stream, no kernels.
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/driver.h"
#include "src/exec/cuda/gpu_state.h"

namespace weft::cuda {
namespace {

// cuStreamWaitValue32 and cuStreamWriteValue32 have the same type.
using WordFunction = decltype(cuStreamWaitValue32);

template <typename State>
void put_on_stream(State& s, WordFunction* function, unsigned flags, const uint32_t* word,
                   const char* what) {
  const DeviceScope scope(s.options.device);
  const CUresult result =
      function == nullptr
          ? CUDA_ERROR_NOT_SUPPORTED
          : function(s.order->stream(), reinterpret_cast<CUdeviceptr>(word), 1, flags);
  if (result != CUDA_SUCCESS)
    fail(ncclUnhandledCudaError,
         "{} {}: CUDA error {}; the word must be memory that the GPU reaches", what,
         static_cast<const void*>(word), static_cast<int>(result));
  s.order->forbid_early_start();
  s.order->launched(false);
}

}  // namespace

void GpuExecutor::wait_word(const uint32_t* word) {
  static const auto wait = driver<WordFunction>("cuStreamWaitValue32");
  put_on_stream(*state_, wait, CU_STREAM_WAIT_VALUE_GEQ, word, "waiting for the ready word");
}

// When the value is visible, all earlier work of the stream is done and visible.
void GpuExecutor::write_word(uint32_t* word) {
  static const auto write = driver<WordFunction>("cuStreamWriteValue32");
  put_on_stream(*state_, write, CU_STREAM_WRITE_VALUE_DEFAULT, word, "setting the done word");
}

}  // namespace weft::cuda
