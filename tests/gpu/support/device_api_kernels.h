// Kernels that communicate by themselves. They are built twice: with the CUDA toolkit's own headers
// of NCCL 2.28.9, as users build theirs, and with our nccl_device.h, which has later layouts.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace weft::test {

struct DeviceApi {
  // Handles of nccl.h, whichever version of it the caller includes.
  using Comm = void*;
  using Window = void*;
  struct Communicator {
    alignas(16) char bytes[256] = {};  // an ncclDevComm
    uint32_t lla2a[2] = {};            // an ncclLLA2AHandle
  };
  struct Found {
    void *window, *local, *peer;
  };

  // Loads the kernels. Call it while no kernel waits.
  void (*load)();
  // These return ncclResult_t as a number. `slots`: for exchange(), 0: none.
  int (*create)(Comm comm, int barriers, int blocks, int slots, Communicator& made);
  int (*destroy)(Comm comm, const Communicator& made);
  // All ranks: the sum of the floats at `send` of all ranks arrives at `receive` of all ranks.
  void (*all_reduce)(const Communicator& comm, Window send, Window receive, size_t count,
                     int blocks, cudaStream_t stream);
  // All ranks: rank r gets 1000 * p + r from every rank p, `rounds` times in one kernel. Adds what
  // is wrong to *wrong. nullptr: these headers lack what it needs.
  void (*exchange)(const Communicator& comm, int rounds, unsigned* wrong, cudaStream_t stream);
  // Writes the window that holds `pointer`, its local address and that of a peer, as kernels find
  // them.
  void (*find)(const Communicator& comm, const void* pointer, Window window, int peer, Found* found,
               cudaStream_t stream);
};

extern const DeviceApi toolkit_device_api, our_device_api;

}  // namespace weft::test
