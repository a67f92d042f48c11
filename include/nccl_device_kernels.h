/* What kernels call. Part of nccl_device.h. */
#ifndef NCCL_DEVICE_KERNELS_H_
#define NCCL_DEVICE_KERNELS_H_

#include <cuda/atomic>

/* Threads that work together: a thread, a warp, a block. */
struct ncclCoopThread {
  __device__ int thread_rank() const { return 0; }
  __device__ int size() const { return 1; }
  __device__ int num_threads() const { return 1; }
  __device__ void sync() {}
};
struct ncclCoopWarp {
  __device__ int thread_rank() const { return static_cast<int>(threadIdx.x % 32); }
  __device__ int size() const { return 32; }
  __device__ int num_threads() const { return 32; }
  __device__ void sync() { __syncwarp(); }
};
struct ncclCoopCta {
  __device__ int thread_rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ int num_threads() const { return size(); }
  __device__ void sync() { __syncthreads(); }
};

struct ncclTeamTagWorld {};
struct ncclTeamTagLsa {};
struct ncclTeamTagRail {};

__host__ __device__ inline ncclTeam ncclTeamWorld(const ncclDevComm& comm) {
  return {comm.nRanks, comm.rank, 1};
}
__host__ __device__ inline ncclTeam ncclTeamLsa(const ncclDevComm& comm) {
  return {comm.lsaSize, comm.lsaRank, 1};
}
__host__ __device__ inline ncclTeam ncclTeamRail(const ncclDevComm& comm) {
  return {comm.nRanks / comm.lsaSize, comm.rank / comm.lsaSize, comm.lsaSize};
}
__host__ __device__ inline int ncclTeamRankToWorld(const ncclDevComm& comm, ncclTeam team,
                                                   int rank) {
  return comm.rank + (rank - team.rank) * team.stride;
}
__host__ __device__ inline int ncclTeamRankToLsa(const ncclDevComm& comm, ncclTeam team, int rank) {
  return comm.lsaRank + (rank - team.rank) * team.stride;
}

namespace weft_device {

/* Of a rank of the LSA team, in a window. */
__device__ inline char* lsa_pointer(char* base, uint32_t stride_4g, int rank, size_t offset) {
  return base + (static_cast<uint64_t>(stride_4g) * static_cast<uint64_t>(rank) << 32) + offset;
}

}  // namespace weft_device

__device__ inline void* ncclGetLsaPointer(ncclWindow_t w, size_t offset, int peer) {
  return weft_device::lsa_pointer(w->lsaFlatBase, w->stride4G, peer, offset);
}
__device__ inline void* ncclGetLocalPointer(ncclWindow_t w, size_t offset) {
  return ncclGetLsaPointer(w, offset, w->lsaRank);
}
/* By the rank in the communicator. It must be in the LSA team. */
__device__ inline void* ncclGetPeerPointer(ncclWindow_t w, size_t offset, int peer) {
  return ncclGetLsaPointer(w, offset, w->lsaRank + peer - w->worldRank);
}
__device__ inline void* ncclGetPeerPointer(ncclWindow_t w, size_t offset, ncclTeam team, int peer) {
  return ncclGetLsaPointer(w, offset, w->lsaRank + (peer - team.rank) * team.stride);
}
/* No kernel gets here over Weft: ncclDevCommCreate refuses multimem. */
__device__ inline void* ncclGetMultimemPointer(ncclWindow_t w, size_t offset,
                                               ncclMultimemHandle multimem) {
  return static_cast<char*>(multimem.mcBasePtr) + (size_t{w->mcOffset4K} << 12) + offset;
}
__device__ inline void* ncclGetLsaMultimemPointer(ncclWindow_t w, size_t offset,
                                                  const ncclDevComm& comm) {
  return ncclGetMultimemPointer(w, offset, comm.lsaMultimem);
}
__device__ inline void* ncclGetResourceBufferLsaPointer(const ncclDevComm& comm,
                                                        ncclDevResourceHandle h, int peer) {
  const ncclResourceWindow_vidmem& window = comm.resourceWindow_inlined;
  return weft_device::lsa_pointer(window.lsaFlatBase, window.stride4G, peer, size_t{h} * 128);
}
__device__ inline void* ncclGetResourceBufferLocalPointer(const ncclDevComm& comm,
                                                          ncclDevResourceHandle h) {
  return ncclGetResourceBufferLsaPointer(comm, h, comm.lsaRank);
}
__device__ inline void* ncclGetResourceBufferPeerPointer(const ncclDevComm& comm,
                                                         ncclDevResourceHandle h, ncclTeam team,
                                                         int peer) {
  return ncclGetResourceBufferLsaPointer(comm, h, comm.lsaRank + (peer - team.rank) * team.stride);
}

/* The window that holds an address; NULL: none does. Every thread searches by itself. */
template <typename Coop>
__device__ inline ncclWindow_t ncclFindWindow(Coop, const ncclDevComm& comm, const void* pointer) {
  for (ncclDevCommWindowTable_t table = comm.windowTable; table != nullptr; table = table->next)
    for (const ncclDevCommWindowEntry_t& entry : table->entries)
      if (entry.window != nullptr && reinterpret_cast<uintptr_t>(pointer) - entry.base < entry.size)
        return entry.window;
  return nullptr;
}

/* A barrier between the same threads of all ranks of a team. Its words, for n barriers: n for
 * multimem, n epochs, n for multimem, then for each barrier an inbox per rank, which peers write.
 * Epochs only grow. */
template <typename Coop>
class ncclLsaBarrierSession {
 public:
  __device__ ncclLsaBarrierSession(Coop coop, const ncclDevComm& comm, ncclTeam team,
                                   ncclLsaBarrierHandle handle, uint32_t index)
      : coop_(coop), comm_(comm), team_(team), handle_(handle), index_(index), epoch_(*epoch()) {}
  /* `multimem` has no effect: ranks always write each other's inboxes. */
  __device__ ncclLsaBarrierSession(Coop coop, const ncclDevComm& comm, ncclTeamTagLsa,
                                   uint32_t index, bool /*multimem*/ = false)
      : ncclLsaBarrierSession(coop, comm, ncclTeamLsa(comm), comm.lsaBarrier, index) {}
  __device__ ~ncclLsaBarrierSession() {
    if (coop_.thread_rank() == 0) *epoch() = epoch_;
    coop_.sync();
  }
  ncclLsaBarrierSession(const ncclLsaBarrierSession&) = delete;

  __device__ void arrive(Coop, cuda::memory_order order) {
    coop_.sync();
    if (order != cuda::memory_order_relaxed && order != cuda::memory_order_acquire)
      cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_system);
    for_each_peer(
        [&](int peer) { inbox(peer, team_.rank).store(epoch_ + 1, cuda::memory_order_relaxed); });
  }
  __device__ void wait(Coop, cuda::memory_order order) {
    for_each_peer([&](int peer) {
      const auto mine = inbox(team_.rank, peer);
      while (mine.load(cuda::memory_order_relaxed) - (epoch_ + 1) > 0x7fffffffu) {
      }
    });
    if (order != cuda::memory_order_relaxed && order != cuda::memory_order_release)
      cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_system);
    epoch_++;
    coop_.sync();
  }
  __device__ void sync(Coop coop, cuda::memory_order order) {
    arrive(coop, order);
    wait(coop, order);
  }

 private:
  using Word = cuda::atomic_ref<uint32_t, cuda::thread_scope_system>;
  __device__ uint32_t* epoch() const {
    auto* words =
        static_cast<uint32_t*>(ncclGetResourceBufferLocalPointer(comm_, handle_.bufHandle));
    return words + handle_.nBarriers + index_;
  }
  __device__ Word inbox(int owner, int from) const {
    auto* words = static_cast<uint32_t*>(
        ncclGetResourceBufferPeerPointer(comm_, handle_.bufHandle, team_, owner));
    return Word(words[3 * handle_.nBarriers + static_cast<int>(index_) * team_.nRanks + from]);
  }
  template <typename Use>
  __device__ void for_each_peer(Use use) {
    for (int i = coop_.thread_rank(); i < team_.nRanks - 1; i += coop_.size())
      use(i < team_.rank ? i : i + 1);
  }

  Coop coop_;
  const ncclDevComm& comm_;
  const ncclTeam team_;
  const ncclLsaBarrierHandle handle_;
  const uint32_t index_;
  uint32_t epoch_;
};

#endif
