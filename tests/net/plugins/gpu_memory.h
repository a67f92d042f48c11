// GPU memory for the tiny network: data is copied to and from host memory with asynchronous copies.
// Received data is withheld until a flush, as a NIC and a PCIe switch may do. Without a GPU, host
// memory that is registered as GPU memory is treated alike, so that order and flushes can be tested
// anywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/transport/net_abi/common.h"

namespace weft::test::tiny {

// Instead of the functions of tiny_net.h with these names.
namespace gpu {
ncclResult_t reg(void* comm, void* data, size_t size, int type, void** registration);
// Memory is reached through the descriptor alone: a mapping of the range stands for it.
ncclResult_t reg_dma_buf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                         void** registration);
ncclResult_t dereg(void* comm, void* registration);
ncclResult_t isend(void* comm, void* data, size_t size, void* registration, void** request);
ncclResult_t irecv(void* comm, void* data, size_t size, void* registration, void** request);
ncclResult_t flush(void* comm, int n, void** data, int* sizes, void** registrations,
                   void** request);
ncclResult_t test(void* request, int* done, int* size);
ncclResult_t close_comm(void* comm);
}  // namespace gpu

}  // namespace weft::test::tiny
