// See gemm.h.
#include "perf/overlap/gemm.h"

#include <cuda.h>
#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "perf/common/device.h"

namespace weft::perf::overlap {
namespace {

constexpr size_t kWorkspace = 32 << 20;

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("{}: {}", what, cublasGetStatusString(status)));
}

}  // namespace

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(fmt::format("{}: {}", what, cudaGetErrorString(error)));
}

Stream::Stream(int priority) {
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority), "a stream");
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event");
  // Streams that are first used at the same time can get one hardware queue (perf/queues).
  static std::mutex turns;
  const std::lock_guard lock(turns);
  void* word = device::allocate(4);
  check_cuda(cudaMemsetAsync(word, 0, 4, stream_), "first use of a stream");
  finish();
  device::release(word);
}

void Stream::wait_for(const unsigned* word) const {
  static const auto wait = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult state;
    check_cuda(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, 12000,
                                                cudaEnableDefault, &state),
               "cuStreamWaitValue32");
    return reinterpret_cast<decltype(cuStreamWaitValue32)*>(found);
  }();
  if (wait(stream_, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_GEQ) !=
      CUDA_SUCCESS)
    throw std::runtime_error("cuStreamWaitValue32 failed");
}

void Stream::wait_for(const Stream& other) const {
  check_cuda(cudaEventRecord(other.event_, other.stream_), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(stream_, other.event_), "cudaStreamWaitEvent");
}

Span::Span() {
  check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
}

Span::~Span() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

double Span::us() const {
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
  return ms * 1e3;
}

Bits bfloat16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<Bits>(bits >> 16);
}

Bits* filled(size_t count, float value) {
  const std::vector<Bits> host(count, bfloat16(value));
  void* memory = device::allocate(count * sizeof(Bits));
  device::copy_in(memory, host.data(), count * sizeof(Bits));
  return static_cast<Bits*>(memory);
}

Gemm::Gemm(const Stream& stream, int columns, int inner)
    : columns_(columns), inner_(inner), workspace_(device::allocate(kWorkspace)) {
  check_blas(cublasCreate(&blas_), "cublasCreate");
  check_blas(cublasSetStream(blas_, stream.get()), "cublasSetStream");
  check_blas(cublasSetWorkspace(blas_, workspace_, kWorkspace), "cublasSetWorkspace");
}

Gemm::~Gemm() {
  cublasDestroy(blas_);
  device::release(workspace_);
}

void Gemm::leave(int sms) {
  int all = 0;
  check_cuda(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, 0), "SMs");
  check_blas(cublasSetSmCountTarget(blas_, all - sms), "cublasSetSmCountTarget");
}

void Gemm::run(const Bits* x, const Bits* w, Bits* y, int rows, int batch, int rows_apart) {
  const float one = 1, zero = 0;
  check_blas(cublasGemmStridedBatchedEx(
                 blas_, CUBLAS_OP_N, CUBLAS_OP_N, columns_, rows, inner_, &one, w, CUDA_R_16BF,
                 columns_, 0, x, CUDA_R_16BF, inner_, static_cast<long long>(rows_apart) * inner_,
                 &zero, y, CUDA_R_16BF, columns_, static_cast<long long>(rows_apart) * columns_,
                 batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
             "cublasGemmStridedBatchedEx");
}

}  // namespace weft::perf::overlap
