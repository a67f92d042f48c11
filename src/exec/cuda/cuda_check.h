// CUDA errors as exceptions, and scopes that restore the caller's device.
#pragma once

#include <cuda_runtime.h>

#include <new>

#include "src/base/error.h"

namespace weft::cuda {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // do not leave the error for the caller's next check
  fail(ncclUnhandledCudaError, "{}: {}", what, cudaGetErrorString(error));
}

// While this lives, this thread may make calls that a stream capture would forbid. A capture in
// another thread does not forbid them either: the calls do not concern it.
class OutsideCapture {
 public:
  OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Makes a device current and restores the caller's.
class DeviceScope {
 public:
  explicit DeviceScope(int device) : DeviceScope(device, std::nothrow) {
    if (error_ != cudaSuccess) check(error_, "cudaSetDevice");
  }
  // For destructors.
  DeviceScope(int device, std::nothrow_t) noexcept {
    cudaGetDevice(&before_);
    if (before_ == device) return;
    error_ = cudaSetDevice(device);
    changed_ = error_ == cudaSuccess;
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  cudaError_t error_ = cudaSuccess;
  int before_ = 0;
  bool changed_ = false;
};

// For everything except launches: stream captures do not forbid its calls. A launch avoids it,
// because switching the capture mode seems to cost time.
class SetupScope {
 public:
  explicit SetupScope(int device) : device_(device) {}
  SetupScope(int device, std::nothrow_t) noexcept : device_(device, std::nothrow) {}

 private:
  const OutsideCapture outside_;
  const DeviceScope device_;
};

inline uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
inline uint64_t round_up(uint64_t a, uint64_t b) { return ceil_div(a, b) * b; }

}  // namespace weft::cuda
