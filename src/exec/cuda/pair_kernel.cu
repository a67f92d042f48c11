// Send and receive: receivers take the data out of the senders' memory. All of a rank's messages of
// a group in one kernel.
#include "src/exec/cuda/combine.cuh"
#include "src/exec/cuda/kernels.h"

namespace weft::cuda {
namespace {

__global__ void __launch_bounds__(kThreads, 1)
    pair_kernel(const __grid_constant__ PairArguments arguments) {
  __shared__ alignas(16) std::byte parameters[sizeof(PairArguments)];
  auto& a = *reinterpret_cast<PairArguments*>(parameters);
  fetch_parameters(arguments, a);
  __shared__ const std::byte* sources[kMaxRanks];
  __shared__ bool stopped;
  const DeviceComm& comm = a.comm;
  Mailbox& mine = *arguments.mine;
  const uint32_t cta = blockIdx.x, t = threadIdx.x;
  if (t == 0) stopped = false;
  __syncthreads();
  // Thread t deals with the t-th message of each direction.
  const bool sends = t < a.send_count && cta < a.sends[t].ctas;
  if (sends) {
    const auto& m = a.sends[t];
    Announcement& to = comm.mailboxes[m.peer]->messages[cta][comm.rank];
    const uint32_t flag = mine.sent[cta][m.peer] + 1;
    const uint64_t pointer = reinterpret_cast<uint64_t>(m.pointer) - comm.bases[comm.rank];
    store_packet(&to.input, static_cast<uint32_t>(pointer), static_cast<uint32_t>(pointer >> 32),
                 flag);
    store_packet(&to.output, static_cast<uint32_t>(m.bytes), static_cast<uint32_t>(m.bytes >> 32),
                 flag);
  }
  if (t < a.receive_count && cta < a.receives[t].ctas) {
    const auto& m = a.receives[t];
    const Announcement& from = mine.messages[cta][m.peer];
    const uint32_t flag = mine.received[cta][m.peer] + 1;
    Packet pointer, bytes;
    if (!wait_until(comm, [&] {
          pointer = load_packet(&from.input);
          bytes = load_packet(&from.output);
          return pointer.flag0 == flag && pointer.flag1 == flag && bytes.flag0 == flag &&
                 bytes.flag1 == flag;
        }))
      stopped = true;
    sources[t] = reinterpret_cast<const std::byte*>(
        comm.bases[m.peer] + (static_cast<uint64_t>(pointer.data1) << 32 | pointer.data0));
    const uint64_t announced = static_cast<uint64_t>(bytes.data1) << 32 | bytes.data0;
    if (!stopped && announced != m.bytes) {
      stopped = true;
      if (atomicCAS_system(&comm.flags->error, 0u, 1u) == 0u) {
        comm.flags->peer = m.peer;
        comm.flags->expected = static_cast<uint32_t>(m.bytes);
        comm.flags->seen = static_cast<uint32_t>(announced);
      }
      comm.flags->stop = 1;
    }
  }
  __syncthreads();
  if (stopped) return;
  // The threads share the messages out.
  uint32_t groups = 1;
  while (groups < a.receive_count && groups < blockDim.x / 32) groups *= 2;
  const uint32_t threads = blockDim.x / groups;
  for (uint32_t r = t / threads; r < a.receive_count; r += groups) {
    const auto& m = a.receives[r];
    if (cta >= m.ctas) continue;
    copy<8>(sources[r], &m.pointer, 1, m.bytes, {t % threads, threads, cta, m.ctas});
  }
  __syncthreads();
  if (t < a.receive_count && cta < a.receives[t].ctas) {
    const int peer = a.receives[t].peer;
    const uint32_t number = ++mine.received[cta][peer];
    store_release(&comm.mailboxes[peer]->acknowledgements[cta][comm.rank], number, comm.one_device);
  }
  if (sends) {
    const int peer = a.sends[t].peer;
    const uint32_t number = ++mine.sent[cta][peer];
    wait_until(comm, [&] {
      return static_cast<int32_t>(load_acquire(&mine.acknowledgements[cta][peer], comm.one_device) -
                                  number) >= 0;
    });
  }
}

}  // namespace

const void* pair_kernel_function() { return reinterpret_cast<const void*>(pair_kernel); }

}  // namespace weft::cuda
