// A conformance case in device memory. It runs on any stream, any number of times, and in graphs.
#pragma once

#include <string>
#include <vector>

#include "tests/gpu/support/arena.h"
#include "tests/support/case.h"

namespace weft::test {

// Offset of the data from an aligned address, in bytes.
struct Offsets {
  size_t send = 0, receive = 0;
};

// One rank's part. Its memory has guard bytes around the buffers, and a second copy of everything
// as it was before the call. Only the rank's thread calls its methods.
class DeviceCase {
 public:
  DeviceCase(const Case& c, int rank, int nranks, ncclComm_t comm, Arena& arena,
             cudaStream_t stream, Offsets offsets = {});
  ~DeviceCase();
  DeviceCase(const DeviceCase&) = delete;
  DeviceCase& operator=(const DeviceCase&) = delete;

  // Makes new data. All work that used the old data must be done.
  void fill(uint64_t salt, cudaStream_t stream);
  // Restores inputs and poison to their state before the call, in stream order.
  void refill(cudaStream_t stream);
  ncclResult_t launch(cudaStream_t stream);
  // Waits for the stream. "" or the error: a wrong result, a changed input, a write elsewhere.
  std::string check(cudaStream_t stream) const;

  const Case& what() const { return case_; }
  void* receive() const { return memory_ + receive_at_; }
  size_t receive_bytes() const { return receive_bytes_; }

 private:
  Case case_;
  int rank_, nranks_;
  ncclComm_t comm_;
  ncclRedOp_t op_ = ncclSum;
  bool owns_op_ = false;
  uint64_t scalar_ = 0;
  size_t bytes_ = 0;  // guards, send buffer and receive buffer together
  size_t send_at_ = 0, receive_at_ = 0, receive_bytes_ = 0;
  char* memory_ = nullptr;
  char* before_ = nullptr;
  std::vector<char> image_;  // the memory before the call
};

// Fills, launches on `stream` and checks. "" or the error with the case's description.
std::string run_device_case(const Case& c, int rank, int nranks, ncclComm_t comm, Arena& arena,
                            cudaStream_t stream, Offsets offsets = {});

}  // namespace weft::test
