// See gpu_executor.h.
#include "src/exec/cuda/gpu_executor.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/kernels.h"

namespace weft::cuda {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // do not leave it for the caller's next check
  fail(ncclUnhandledCudaError, "{}: {}", what, cudaGetErrorString(error));
}

// Makes a device current and puts the caller's back.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    cudaGetDevice(&before_);
    if (before_ != device) check(cudaSetDevice(device), "cudaSetDevice");
    changed_ = before_ != device;
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

template <typename T>
T* device_memory(size_t count = 1) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, sizeof(T) * count), "cudaMalloc");
  return static_cast<T*>(memory);
}

// A kernel that is loaded lazily while another rank's kernel already spins would deadlock: all are
// loaded at init.
void load_kernels(int device) {
  static std::mutex mutex;
  static std::vector<int> loaded;
  std::lock_guard lock(mutex);
  if (std::find(loaded.begin(), loaded.end(), device) != loaded.end()) return;
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, pair_kernel_function()), "loading kernels");
  check(cudaFuncGetAttributes(&attributes, move_kernel_function()), "loading kernels");
  for (int type = 0; type < ncclNumTypes; type++)
    for (int op = ncclSum; op <= ncclMin; op++)
      check(cudaFuncGetAttributes(&attributes,
                                  program_kernel_function(static_cast<ncclDataType_t>(type),
                                                          static_cast<ncclRedOp_t>(op))),
            "loading kernels");
  loaded.push_back(device);
}

uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

constexpr size_t kStageUnit = size_t{1} << 20;
constexpr size_t kMailboxRoom = (sizeof(Mailbox) + kStageUnit - 1) / kStageUnit * kStageUnit;

}  // namespace

bool available() {
  static const bool found = [] {
    if (Config::from_environment().host_mode) return false;
    int count = 0;
    const bool ok = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
    cudaGetLastError();
    return ok;
  }();
  return found;
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

void* allocate(size_t size) { return device_memory<std::byte>(std::max<size_t>(size, 1)); }
void release(void* pointer) { check(cudaFree(pointer), "cudaFree"); }

struct GpuExecutor::State {
  int rank = 0, nranks = 0, device = 0, sms = 0;
  int max_ctas = 0;
  size_t cta_bytes = 0;
  uint64_t process = 0;
  bool staged = false;
  size_t stage_bytes = 0;       // of each of the three parts below
  std::byte* memory = nullptr;  // one allocation: the mailbox, and the stage if there is one
  Mailbox* mailbox = nullptr;
  std::byte *stage_in = nullptr, *stage_out = nullptr, *stage_send = nullptr;
  std::vector<void*> opened;  // peers' memory, mapped here
  DeviceComm comm;
  HostFlags* flags = nullptr;
  cudaEvent_t event = nullptr;
  cudaStream_t stream = nullptr;  // of the launch under way, and then the last one used
  bool used = false;
};

GpuExecutor::GpuExecutor(int rank, int nranks, int device, int max_ctas, bool staged,
                         uint64_t process)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  if (nranks > kMaxRanks)
    fail(ncclInvalidUsage, "{} ranks: at most {} can share GPUs in this release", nranks,
         kMaxRanks);
  s.rank = rank;
  s.nranks = nranks;
  s.device = device;
  const DeviceScope scope(device);
  s.max_ctas = max_ctas;
  s.cta_bytes = Config::from_environment().cta_bytes;
  check(cudaDeviceGetAttribute(&s.sms, cudaDevAttrMultiProcessorCount, s.device),
        "cudaDeviceGetAttribute");
  load_kernels(s.device);
  s.process = process;
  s.staged = staged;
  s.stage_bytes =
      staged ? ceil_div(Config::from_environment().stage_bytes, kStageUnit) * kStageUnit : 0;
  s.memory = device_memory<std::byte>(kMailboxRoom + 3 * s.stage_bytes);
  s.mailbox = reinterpret_cast<Mailbox*>(s.memory);
  s.stage_in = s.memory + kMailboxRoom;
  s.stage_out = s.stage_in + s.stage_bytes;
  s.stage_send = s.stage_out + s.stage_bytes;
  check(cudaMemset(s.mailbox, 0, sizeof(Mailbox)), "cudaMemset");
  void* flags = nullptr;
  check(cudaHostAlloc(&flags, sizeof(HostFlags), cudaHostAllocMapped | cudaHostAllocPortable),
        "cudaHostAlloc");
  s.flags = static_cast<HostFlags*>(flags);
  *s.flags = {};
  check(cudaEventCreateWithFlags(&s.event, cudaEventDisableTiming), "cudaEventCreate");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

GpuExecutor::~GpuExecutor() {
  State& s = *state_;
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(s.device);
  for (void* memory : s.opened) cudaIpcCloseMemHandle(memory);
  cudaFree(s.memory);
  cudaFreeHost(s.flags);
  cudaEventDestroy(s.event);
  cudaSetDevice(before);
  cudaGetLastError();
}

GpuPeer GpuExecutor::describe() const {
  const State& s = *state_;
  GpuPeer peer;
  peer.process = s.process;
  peer.memory = reinterpret_cast<uint64_t>(s.memory);
  peer.device = s.device;
  peer.max_ctas = s.max_ctas;
  if (s.staged) {
    const DeviceScope scope(s.device);
    cudaIpcMemHandle_t handle;
    check(cudaIpcGetMemHandle(&handle, s.memory), "cudaIpcGetMemHandle");
    static_assert(sizeof handle == sizeof peer.handle);
    std::memcpy(peer.handle, &handle, sizeof handle);
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, s.device), "cudaGetDeviceProperties");
  std::memcpy(peer.gpu, &properties.uuid, sizeof peer.gpu);
  return peer;
}

int GpuExecutor::device() const { return state_->device; }
size_t GpuExecutor::packed_limit() { return kPackedBytes; }

void GpuExecutor::connect(std::span<const GpuPeer> peers) {
  State& s = *state_;
  const DeviceScope scope(s.device);
  DeviceComm comm;
  comm.rank = s.rank;
  comm.nranks = s.nranks;
  comm.flags = s.flags;
  const GpuPeer& mine = peers[static_cast<size_t>(s.rank)];
  int most_sharing = 1, limit = kMaxCtas;
  for (size_t p = 0; p < peers.size(); p++) {
    const GpuPeer& peer = peers[p];
    int sharing = 0;
    for (const GpuPeer& other : peers)
      sharing += std::memcmp(other.gpu, peer.gpu, sizeof peer.gpu) == 0 ? 1 : 0;
    most_sharing = std::max(most_sharing, sharing);
    if (peer.max_ctas > 0) limit = std::min(limit, peer.max_ctas);
    const bool same_gpu = std::memcmp(peer.gpu, mine.gpu, sizeof mine.gpu) == 0;
    comm.one_device = comm.one_device && same_gpu && peer.process == mine.process;
    auto* memory = reinterpret_cast<std::byte*>(peer.memory);
    if (peer.process != mine.process) {
      cudaIpcMemHandle_t handle;
      std::memcpy(&handle, peer.handle, sizeof handle);
      void* mapped = nullptr;
      check(cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess),
            "cudaIpcOpenMemHandle");
      s.opened.push_back(mapped);
      memory = static_cast<std::byte*>(mapped);
    } else if (!same_gpu) {
      int can = 0;
      check(cudaDeviceCanAccessPeer(&can, s.device, peer.device), "cudaDeviceCanAccessPeer");
      if (can == 0)
        fail(ncclInvalidUsage, "GPU {} (rank {}) cannot reach the memory of GPU {} (rank {})",
             s.device, s.rank, peer.device, p);
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer.device, 0);
      cudaGetLastError();
      if (enabled != cudaErrorPeerAccessAlreadyEnabled)
        check(enabled, "cudaDeviceEnablePeerAccess");
    }
    comm.mailboxes[p] = reinterpret_cast<Mailbox*>(memory);
    comm.bases[p] = s.staged ? reinterpret_cast<uint64_t>(memory) : 0;
  }
  int here = 0;
  for (const GpuPeer& peer : peers)
    here += peer.process == mine.process && std::memcmp(peer.gpu, mine.gpu, sizeof mine.gpu) == 0
                ? 1
                : 0;
  const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (s.rank == 0 && here >= (queues != nullptr ? std::max(1, std::atoi(queues)) : 8) && here > 1)
    WEFT_WARN(
        "{} ranks of this process share GPU {}, which has {} hardware queues: a kernel may be "
        "queued behind one that "
        "waits for it. Set CUDA_DEVICE_MAX_CONNECTIONS=32 before the program starts",
        here, s.device, queues != nullptr ? queues : "8");
  // All thread blocks of all ranks that share a GPU must be resident together: count on one per
  // multiprocessor.
  s.max_ctas = std::max(1, std::min(limit, s.sms / most_sharing));
  s.comm = comm;
}

void GpuExecutor::begin(std::span<const cudaStream_t> streams) {
  State& s = *state_;
  const cudaStream_t stream = streams.front();
  // Operations of a communicator follow each other, whatever streams they are on. A capture orders
  // its own.
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  const bool captured = cudaStreamIsCapturing(stream, &capturing) == cudaSuccess &&
                        capturing != cudaStreamCaptureStatusNone;
  if (s.used && s.stream != stream && !captured &&
      cudaEventRecord(s.event, s.stream) == cudaSuccess)
    cudaStreamWaitEvent(stream, s.event, 0);
  cudaGetLastError();
  s.stream = stream;
  s.used = true;
  for (const cudaStream_t other : streams.subspan(1)) {
    check(cudaEventRecord(s.event, other), "cudaEventRecord");
    check(cudaStreamWaitEvent(stream, s.event, 0), "cudaStreamWaitEvent");
  }
}

void GpuExecutor::end(std::span<const cudaStream_t> streams) {
  State& s = *state_;
  if (streams.size() < 2) return;
  check(cudaEventRecord(s.event, s.stream), "cudaEventRecord");
  for (const cudaStream_t other : streams.subspan(1))
    check(cudaStreamWaitEvent(other, s.event, 0), "cudaStreamWaitEvent");
}

// Between processes: the caller's buffers are copied to and from the stage, piece by piece. The
// next piece cannot overtake: a rank announces it only when it has copied the last one out.
void GpuExecutor::run(const Program& program, const GpuCall& call) {
  State& s = *state_;
  const DeviceScope scope(s.device);
  if (!s.staged || call.packed) return launch(program, call, call.input, call.output, call.count);
  const Collective& c = program.collective;
  const size_t element = element_size(call.reduction.type);
  const bool blocks = c.kind == CollectiveKind::kAllGather ||
                      c.kind == CollectiveKind::kReduceScatter ||
                      c.kind == CollectiveKind::kAllToAll || c.kind == CollectiveKind::kGather ||
                      c.kind == CollectiveKind::kScatter;
  const size_t piece =
      s.stage_bytes / static_cast<size_t>(blocks ? s.nranks : 1) / 64 * 64 / element;
  const auto in_blocks = static_cast<size_t>(c.input_blocks(s.rank)),
             out_blocks = static_cast<size_t>(c.output_blocks(s.rank));
  for (size_t at = 0; at < call.count; at += piece) {
    const size_t count = std::min(piece, call.count - at), width = count * element,
                 pitch = call.count * element;
    if (in_blocks > 0)
      check(cudaMemcpy2DAsync(s.stage_in, width,
                              static_cast<const std::byte*>(call.input) + at * element, pitch,
                              width, in_blocks, cudaMemcpyDeviceToDevice, s.stream),
            "copying to the stage");
    launch(program, call, s.stage_in, s.stage_out, count);
    if (out_blocks > 0)
      check(
          cudaMemcpy2DAsync(static_cast<std::byte*>(call.output) + at * element, pitch, s.stage_out,
                            width, width, out_blocks, cudaMemcpyDeviceToDevice, s.stream),
          "copying from the stage");
  }
}

void GpuExecutor::launch(const Program& program, const GpuCall& call, const void* input,
                         void* output, size_t count) {
  State& s = *state_;
  KernelArguments a;
  if (program.lanes.size() != 1 || program.steps.size() > kMaxSteps ||
      program.operands.size() > kMaxOperands)
    fail(ncclInternalError, "a program of {} lanes, {} steps and {} operands does not fit a kernel",
         program.lanes.size(), program.steps.size(), program.operands.size());
  a.comm = s.comm;
  a.mine = s.mailbox;
  a.input = static_cast<const std::byte*>(input);
  a.output = static_cast<std::byte*>(output);
  a.count = count;
  a.reduction = call.reduction;
  a.element = static_cast<uint32_t>(element_size(call.reduction.type));
  a.chunks = program.chunks;
  const auto unit = std::max<uint64_t>(1, 64 / a.element);
  a.chunk = ceil_div(ceil_div(count, static_cast<uint64_t>(program.chunks)), unit) * unit;
  a.signature = call.signature;
  a.packed = call.packed;
  a.step_count = static_cast<uint32_t>(program.steps.size());
  std::copy(program.steps.begin(), program.steps.end(), a.steps);
  std::copy(program.operands.begin(), program.operands.end(), a.operands);
  for (uint32_t i = 0; i < program.operands.size(); i++)
    if (a.operands[i].buffer == ProgramBuffer::kPeer) {
      // Ports become ranks again: tokens go to mailboxes. Sources and destinations have separate
      // port lists.
      const auto step =
          std::find_if(program.steps.begin(), program.steps.end(), [&](const ProgramStep& st) {
            return i >= st.first_operand && i < st.first_operand + st.sources + st.destinations;
          });
      const bool source = i < step->first_operand + step->sources;
      a.operands[i].index =
          (source ? program.receives : program.sends)[static_cast<size_t>(a.operands[i].index)]
              .peer;
    }
  // In place an all-to-all would overwrite what others still read: it works on a copy.
  void* copy = nullptr;
  if (program.collective.kind == CollectiveKind::kAllToAll && input == output && s.nranks > 1) {
    const size_t bytes = count * a.element * static_cast<size_t>(s.nranks);
    check(cudaMallocAsync(&copy, bytes, s.stream), "cudaMallocAsync");
    check(cudaMemcpyAsync(copy, input, bytes, cudaMemcpyDeviceToDevice, s.stream),
          "cudaMemcpyAsync");
    a.input = static_cast<const std::byte*>(copy);
  }
  const uint64_t bytes = (call.packed ? count : a.chunk) * a.element;
  const uint64_t share = call.packed ? 4096 : s.cta_bytes;
  const auto ctas = static_cast<unsigned>(
      std::clamp<uint64_t>(ceil_div(bytes, share), 1, static_cast<uint64_t>(s.max_ctas)));
  const void* kernel = call.reduces
                           ? program_kernel_function(call.reduction.type, call.reduction.op)
                           : move_kernel_function();
  void* parameters[] = {&a};
  check(cudaLaunchKernel(kernel, dim3(ctas), dim3(kThreads), parameters, 0, s.stream),
        "launching a collective");
  if (copy != nullptr) check(cudaFreeAsync(copy, s.stream), "cudaFreeAsync");
}

// Between processes what is sent goes through the stage, a slot per peer; what is received is taken
// from the sender's.
void GpuExecutor::run_pairs(std::span<const GpuMessage> sends,
                            std::span<const GpuMessage> receives) {
  State& s = *state_;
  const DeviceScope scope(s.device);
  if (!s.staged) return launch_pairs(sends, receives);
  const size_t slot = s.stage_bytes / static_cast<size_t>(s.nranks) / 64 * 64;
  size_t most = 0;
  for (const GpuMessage& m : sends) most = std::max(most, m.bytes);
  for (const GpuMessage& m : receives) most = std::max(most, m.bytes);
  for (size_t at = 0; at < most; at += slot) {
    std::vector<GpuMessage> out, in;
    for (const GpuMessage& m : sends) {
      if (at >= m.bytes) continue;
      std::byte* staged = s.stage_send + slot * static_cast<size_t>(m.peer);
      const size_t bytes = std::min(slot, m.bytes - at);
      check(cudaMemcpyAsync(staged, static_cast<const std::byte*>(m.pointer) + at, bytes,
                            cudaMemcpyDeviceToDevice, s.stream),
            "copying to the stage");
      out.push_back({staged, bytes, m.peer});
    }
    for (const GpuMessage& m : receives)
      if (at < m.bytes)
        in.push_back(
            {static_cast<std::byte*>(m.pointer) + at, std::min(slot, m.bytes - at), m.peer});
    launch_pairs(out, in);
  }
}

void GpuExecutor::launch_pairs(std::span<const GpuMessage> sends,
                               std::span<const GpuMessage> receives) {
  State& s = *state_;
  PairArguments a;
  a.comm = s.comm;
  a.mine = s.mailbox;
  uint32_t ctas = 1;
  // The number of blocks depends on the size alone, so that both sides come to the same one.
  const uint64_t most = std::max<uint64_t>(1, static_cast<uint64_t>(s.max_ctas));
  const auto add = [&](PairArguments::Message* list, uint32_t& count, const GpuMessage& m) {
    const auto blocks =
        static_cast<uint32_t>(std::clamp<uint64_t>(ceil_div(m.bytes, s.cta_bytes), 1, most));
    list[count++] = {static_cast<std::byte*>(m.pointer), m.bytes, m.peer, blocks};
    ctas = std::max(ctas, blocks);
  };
  for (const GpuMessage& m : sends) add(a.sends, a.send_count, m);
  for (const GpuMessage& m : receives) add(a.receives, a.receive_count, m);
  void* parameters[] = {&a};
  check(
      cudaLaunchKernel(pair_kernel_function(), dim3(ctas), dim3(kThreads), parameters, 0, s.stream),
      "launching send/recv");
}

void GpuExecutor::stop() noexcept { __atomic_store_n(&state_->flags->stop, 1, __ATOMIC_SEQ_CST); }

std::string GpuExecutor::error() const {
  const HostFlags& flags = *state_->flags;
  if (__atomic_load_n(&flags.error, __ATOMIC_SEQ_CST) == 0) return {};
  return fmt::format(
      "peer {} made another call than this rank (signatures {:#x} and {:#x}): all ranks must make "
      "the same calls "
      "in the same order",
      flags.peer, flags.seen, flags.expected);
}

void GpuExecutor::synchronize() noexcept {
  State& s = *state_;
  if (!s.used) return;
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(s.device);
  cudaStreamSynchronize(s.stream);
  cudaSetDevice(before);
  cudaGetLastError();
}

}  // namespace weft::cuda
