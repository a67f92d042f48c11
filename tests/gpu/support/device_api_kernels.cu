// See device_api_kernels.h. WEFT_OUR_HEADERS says whose headers the build has put first.
#include <nccl.h>
#include <nccl_device.h>

#include <cstring>

#include "tests/gpu/support/device_api_kernels.h"

namespace weft::test {
namespace {

using Comm = DeviceApi::Comm;
using Window = DeviceApi::Window;
using Communicator = DeviceApi::Communicator;
using Found = DeviceApi::Found;

#ifdef WEFT_OUR_HEADERS
static_assert(WEFT_DEVICE_API_VERSION == 23007 && sizeof(ncclDevComm) == 240);
#else
static_assert(NCCL_VERSION_CODE == 22809 && sizeof(ncclDevComm) == 200);
#endif
static_assert(sizeof(ncclDevComm) <= sizeof(Communicator::bytes) &&
              sizeof(ncclLLA2AHandle) == sizeof(Communicator::lla2a));

ncclDevComm device_comm(const Communicator& comm) {
  ncclDevComm made;
  std::memcpy(&made, comm.bytes, sizeof made);
  return made;
}

__global__ void sum_everywhere(ncclDevComm comm, ncclWindow_t send, ncclWindow_t receive,
                               size_t count) {
  const ncclCoopCta block;
  ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x);
  barrier.sync(block, cuda::memory_order_acquire);
  const int ranks = comm.lsaSize;
  const size_t mine = threadIdx.x + blockDim.x * (comm.lsaRank + size_t{blockIdx.x} * ranks);
  for (size_t i = mine; i < count; i += size_t{blockDim.x} * gridDim.x * ranks) {
    float sum = 0;
    for (int peer = 0; peer < ranks; peer++)
      sum += static_cast<const float*>(ncclGetLsaPointer(send, 0, peer))[i];
    for (int peer = 0; peer < ranks; peer++)
      static_cast<float*>(ncclGetLsaPointer(receive, 0, peer))[i] = sum;
  }
  barrier.sync(block, cuda::memory_order_release);
}

#ifndef WEFT_OUR_HEADERS
__global__ void tell_everyone(ncclDevComm comm, ncclLLA2AHandle handle, int rounds,
                              unsigned* wrong) {
  const ncclCoopCta block;
  const ncclTeam team = ncclTeamLsa(comm);
  ncclLLA2ASession<ncclCoopCta> session(block, comm, team, handle, 0, team.nRanks);
  const int peer = static_cast<int>(threadIdx.x);
  for (int round = 0; round < rounds; round++) {
    if (peer < team.nRanks) session.send(peer, team.rank, uint64_t{1000u * team.rank + peer});
    if (peer < team.nRanks && session.recv<uint64_t>(peer) != uint64_t{1000u * peer + team.rank})
      atomicAdd(wrong, 1u);
    session.endEpoch(block);
  }
}
#endif

__global__ void look_up(ncclDevComm comm, const void* pointer, ncclWindow_t window, int peer,
                        Found* found) {
  found->window = ncclFindWindow(ncclCoopThread(), comm, pointer);
  found->local = ncclGetLocalPointer(window, 0);
  found->peer = ncclGetPeerPointer(window, 0, peer);
}

void load() {
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, sum_everywhere);
#ifndef WEFT_OUR_HEADERS
  cudaFuncGetAttributes(&attributes, tell_everyone);
#endif
  cudaFuncGetAttributes(&attributes, look_up);
}

int create(Comm comm, int barriers, int blocks, int slots, Communicator& made) {
#ifdef WEFT_OUR_HEADERS
  ncclDevCommRequirements wanted = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
  ncclDevCommRequirements wanted{};
#endif
  wanted.lsaBarrierCount = barriers;
  ncclDevResourceRequirements buffer{};
  ncclLLA2AHandle handle{};
  if (slots > 0) {
    const ncclResult_t asked = ncclLLA2ACreateRequirement(blocks, slots, &handle, &buffer);
    if (asked != ncclSuccess) return asked;
    wanted.resourceRequirementsList = &buffer;
  }
  ncclDevComm out;
  std::memset(static_cast<void*>(&out), 0x55, sizeof out);
  const ncclResult_t result = ncclDevCommCreate(static_cast<ncclComm_t>(comm), &wanted, &out);
  std::memcpy(made.bytes, &out, sizeof out);
  std::memcpy(made.lla2a, &handle, sizeof handle);
  return result;
}

int destroy(Comm comm, const Communicator& made) {
  const ncclDevComm one = device_comm(made);
  return ncclDevCommDestroy(static_cast<ncclComm_t>(comm), &one);
}

void all_reduce(const Communicator& comm, Window send, Window receive, size_t count, int blocks,
                cudaStream_t stream) {
  sum_everywhere<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(
      device_comm(comm), static_cast<ncclWindow_t>(send), static_cast<ncclWindow_t>(receive),
      count);
}

#ifndef WEFT_OUR_HEADERS
void exchange(const Communicator& comm, int rounds, unsigned* wrong, cudaStream_t stream) {
  ncclLLA2AHandle handle;
  std::memcpy(&handle, comm.lla2a, sizeof handle);
  tell_everyone<<<1, 64, 0, stream>>>(device_comm(comm), handle, rounds, wrong);
}
#endif

void find(const Communicator& comm, const void* pointer, Window window, int peer, Found* found,
          cudaStream_t stream) {
  look_up<<<1, 1, 0, stream>>>(device_comm(comm), pointer, static_cast<ncclWindow_t>(window), peer,
                               found);
}

}  // namespace

#ifdef WEFT_OUR_HEADERS
const DeviceApi our_device_api = {load, create, destroy, all_reduce, nullptr, find};
#else
const DeviceApi toolkit_device_api = {load, create, destroy, all_reduce, exchange, find};
#endif

}  // namespace weft::test
