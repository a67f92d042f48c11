// Streams, times and products of matrices on a GPU, for gemm_perf.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace weft::perf::overlap {

void check_cuda(cudaError_t error, const char* what);

class Stream {
 public:
  explicit Stream(int priority = 0);
  ~Stream() {
    cudaStreamDestroy(stream_);
    cudaEventDestroy(event_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void finish() const { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  // Work given later begins when the word is not 0, or when `other` has done what it has now.
  void wait_for(const unsigned* word) const;
  void wait_for(const Stream& other) const;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;  // for streams that wait for this one
};

// The time between two points of a stream.
class Span {
 public:
  Span();
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  void begin(const Stream& stream) { check_cuda(cudaEventRecord(begin_, stream.get()), "begin"); }
  void end(const Stream& stream) { check_cuda(cudaEventRecord(end_, stream.get()), "end"); }
  double us() const;

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

using Bits = uint16_t;  // of a bfloat16
Bits bfloat16(float value);
Bits* filled(size_t count, float value);  // device::release() frees it

// Row-major products y = x w of bfloat16 on one stream.
class Gemm {
 public:
  Gemm(const Stream& stream, int columns, int inner);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  void leave(int sms);  // so many SMs to others
  // `batch` of them, of `rows` rows each. x and y of the next begin `rows_apart` rows later.
  void run(const Bits* x, const Bits* w, Bits* y, int rows, int batch, int rows_apart);

 private:
  int columns_, inner_;
  void* workspace_;
  cublasHandle_t blas_ = nullptr;
};

}  // namespace weft::perf::overlap
