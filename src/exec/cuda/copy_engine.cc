// See copy_engine.h.
#include "src/exec/cuda/copy_engine.h"

#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/driver.h"
#include "src/exec/cuda/events.h"
#include "src/exec/cuda/gpu_state.h"

namespace weft::cuda {
namespace {

static_assert(sizeof(CopyBoard) <= kCopyBoardBytes);

CUresult submit_operations(cudaStream_t stream, std::vector<CUstreamBatchMemOpParams>& all) {
  static const auto batch = driver<decltype(cuStreamBatchMemOp)>("cuStreamBatchMemOp");
  return batch == nullptr ? CUDA_ERROR_NOT_SUPPORTED
                          : batch(stream, static_cast<unsigned>(all.size()), all.data(), 0);
}

CUstreamBatchMemOpParams wait_for(CUdeviceptr word, unsigned flags) {
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = word;
  operation.waitValue.value = 1;
  operation.waitValue.flags = flags;
  return operation;
}

// When the value is visible, all earlier work of the stream is done and visible.
CUstreamBatchMemOpParams write(CUdeviceptr word, uint32_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = word;
  operation.writeValue.value = value;
  operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return operation;
}

// Copies that leave the SMs to others, if the driver can.
cudaError_t copy_batch(std::span<const OwnCopy> copies, cudaStream_t stream) {
#if CUDART_VERSION >= 12080
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<size_t> bytes;
  for (const OwnCopy& copy : copies) {
    to.push_back(copy.destination);
    from.push_back(copy.source);
    bytes.push_back(copy.bytes);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
#if CUDART_VERSION >= 13000
  return cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), copies.size(), &attributes,
                              &first, 1, stream);
#else
  size_t failed = 0;
  return cudaMemcpyBatchAsync(to.data(), const_cast<void**>(from.data()), bytes.data(),
                              copies.size(), &attributes, &first, 1, &failed, stream);
#endif
#else
  static_cast<void>(copies);
  static_cast<void>(stream);
  return cudaErrorNotSupported;
#endif
}

// Whether graphs can contain these operations. Does not use a capture: during a capture nobody may
// wait for the device.
bool in_a_graph(std::vector<CUstreamBatchMemOpParams>& all) {
  static const auto current = driver<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent");
  static const auto add = driver<decltype(cuGraphAddBatchMemOpNode)>("cuGraphAddBatchMemOpNode");
  if (current == nullptr || add == nullptr) return false;
  CUDA_BATCH_MEM_OP_NODE_PARAMS parameters{};
  parameters.count = static_cast<unsigned>(all.size());
  parameters.paramArray = all.data();
  cudaGraph_t graph = nullptr;
  check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
  CUgraphNode node = nullptr;
  const bool added = current(&parameters.ctx) == CUDA_SUCCESS &&
                     add(&node, graph, nullptr, 0, &parameters) == CUDA_SUCCESS;
  cudaGraphDestroy(graph);
  return added;
}

CUdeviceptr device_address(void* host) {
  void* device = nullptr;
  check(cudaHostGetDevicePointer(&device, host, 0), "cudaHostGetDevicePointer");
  return reinterpret_cast<CUdeviceptr>(device);
}

}  // namespace

CopyEngine::CopyEngine(int rank, int device, double timeout_s, HostFlags* flags)
    : rank_(rank), device_(device), timeout_s_(timeout_s), flags_(flags) {
  missing_ = find_out();
}

CopyEngine::~CopyEngine() {
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  if (guard_.joinable()) guard_.join();
}

// Tries every operation once, to see whether it works. It also makes CUDA load everything now, and
// not later while a stream waits.
std::string CopyEngine::find_out() {
  constexpr size_t kTried = size_t{1} << 20;
  const PooledResource host(DeviceStore::Kind::kHostMemory, kCopyBoardBytes);
  const PooledResource device(DeviceStore::Kind::kDeviceMemory, 2 * kTried);
  auto* word = static_cast<uint32_t*>(host.get());
  *word = 1;
  const CUdeviceptr at = device_address(word);
  std::vector<CUstreamBatchMemOpParams> operations = {wait_for(at, wait_flags_), write(at, 0),
                                                      write(at, 2)};
  if (const CUresult tried = submit_operations(second_, operations); tried != CUDA_SUCCESS)
    return fmt::format("no memory operations in streams (CUDA error {})", static_cast<int>(tried));
  auto* first = static_cast<std::byte*>(device.get());
  const OwnCopy copies[] = {{first, first + kTried, 64}, {first + 256, first + kTried, kTried / 2}};
  batches_ = copy_batch(copies, second_) == cudaSuccess;
  cudaGetLastError();
  for (const OwnCopy& copy : copies)
    check(cudaMemcpyAsync(copy.destination, copy.source, copy.bytes, cudaMemcpyDefault, second_),
          "cudaMemcpyAsync");
  check(cudaStreamSynchronize(second_), "trying memory operations in streams");
  if (*static_cast<volatile uint32_t*>(word) != 2)
    return "memory operations in streams do not reach host memory";
  operations = {wait_for(at, wait_flags_), write(at, 0)};
  return in_a_graph(operations) ? std::string() : "no memory operations in CUDA graphs";
}

void CopyEngine::connect(std::span<const Peer> peers, size_t slot_bytes, bool alone,
                         SharedMemory& shared) {
  slot_bytes_ = slot_bytes;
  alone_ = alone;
  const auto me = static_cast<size_t>(rank_);
  auto* board = reinterpret_cast<CopyBoard*>(peers[me].board);
  for (auto& words : board->empty)
    for (uint32_t& word : words) word = 1;
  board_ = board;
  for (const Peer& peer : peers) shared.pin(peer.board, kCopyBoardBytes);
  int flush = 0;
  static const auto attribute = driver<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  const bool several = std::any_of(peers.begin(), peers.end(), [](auto& p) { return !p.same_gpu; });
  if (several && attribute != nullptr &&
      attribute(&flush, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, device_) == CUDA_SUCCESS &&
      flush != 0)
    wait_flags_ |= CU_STREAM_WAIT_VALUE_FLUSH;
  const auto word_at = [&](const Peer& peer, const auto& word) {
    const auto* base = reinterpret_cast<CopyBoard*>(peer.board);
    return device_address(peer.board) +
           static_cast<size_t>(reinterpret_cast<const std::byte*>(&word) -
                               reinterpret_cast<const std::byte*>(base));
  };
  waiting_ = word_at(peers[me], board->waiting);
  for (size_t p = 0; p < peers.size(); p++) {
    auto* theirs = reinterpret_cast<CopyBoard*>(peers[p].board);
    Ends& ends = ends_.emplace_back();
    ends.full = word_at(peers[me], board->full[p]);
    ends.empty = word_at(peers[me], board->empty[p]);
    ends.their_full = word_at(peers[p], theirs->full[me]);
    ends.their_empty = word_at(peers[p], theirs->empty[me]);
    ends.their_slots = peers[p].stage + me * kCopySlots * slot_bytes;
    ends.slots = peers[me].stage + p * kCopySlots * slot_bytes;
  }
  guard_ = std::thread([this] { stand_guard(); });
}

void CopyEngine::flush(bool sends) {
  std::vector<CUstreamBatchMemOpParams>& all = operations(sends);
  if (all.empty()) return;
  static_assert((3 * kMaxRanks + 1) + kMaxRanks < 256);  // the limit of one submission
  const CUresult result = submit_operations(sends ? sending_ : receiving_, all);
  all.clear();
  if (result != CUDA_SUCCESS)
    fail(ncclUnhandledCudaError, "cuStreamBatchMemOp: CUDA error {}", static_cast<int>(result));
}

void CopyEngine::move(bool sends) {
  flush(sends);
  const cudaStream_t stream = sends ? sending_ : receiving_;
  // The legacy stream takes no batches, and batches cannot be captured.
  if (batches_ && !captured_ && stream != nullptr && stream != cudaStreamLegacy)
    return check(copy_batch(moves_, stream), "cudaMemcpyBatchAsync");
  for (const OwnCopy& copy : moves_)
    check(cudaMemcpyAsync(copy.destination, copy.source, copy.bytes, cudaMemcpyDefault, stream),
          "cudaMemcpyAsync");
}

void CopyEngine::copy_own(const OwnCopy& copy) {
  moves_ = {copy};
  move(true);
}

void CopyEngine::take(std::span<const CopyPiece> pieces, bool sends) {
  const CUdeviceptr waiting = waiting_ + (sends ? 0 : sizeof(uint32_t));
  std::vector<CUstreamBatchMemOpParams>& all = operations(sends);
  for (const CopyPiece& piece : pieces) {
    const Ends& ends = ends_[static_cast<size_t>(piece.peer)];
    const CUdeviceptr word =
        (sends ? ends.empty : ends.full) + static_cast<size_t>(piece.slot) * sizeof(uint32_t);
    all.push_back(write(waiting, static_cast<uint32_t>(piece.peer) + 1));
    all.push_back(wait_for(word, wait_flags_));
    all.push_back(write(word, 0));
  }
  all.push_back(write(waiting, 0));
}

void CopyEngine::give(std::span<const CopyPiece> pieces, bool sends) {
  for (const CopyPiece& piece : pieces) {
    const Ends& ends = ends_[static_cast<size_t>(piece.peer)];
    operations(sends).push_back(write((sends ? ends.their_full : ends.their_empty) +
                                          static_cast<size_t>(piece.slot) * sizeof(uint32_t),
                                      1));
  }
  // The other stream's queue may fill up before this one gets more work, so submit now.
  if (receiving_ != sending_) flush(sends);
}

void CopyEngine::send(std::span<const CopyPiece> pieces) {
  take(pieces, true);
  moves_.clear();
  for (const CopyPiece& piece : pieces)
    moves_.push_back({ends_[static_cast<size_t>(piece.peer)].their_slots +
                          static_cast<size_t>(piece.slot) * slot_bytes_,
                      piece.pointer, piece.bytes});
  move(true);
  give(pieces, true);
}

void CopyEngine::receive(std::span<const CopyPiece> pieces) {
  take(pieces, false);
  moves_.clear();
  for (const CopyPiece& piece : pieces)
    moves_.push_back({piece.pointer,
                      ends_[static_cast<size_t>(piece.peer)].slots +
                          static_cast<size_t>(piece.slot) * slot_bytes_,
                      piece.bytes});
  move(false);
  give(pieces, false);
}

// A captured launch uses one stream: a capture would block the second stream for calls outside it.
void CopyEngine::run(const CopyWork& work, cudaStream_t stream, bool captured) {
  captured_ = captured;
  const bool two =
      alone_ && !captured && !work.in_place && !work.sends.empty() && !work.receives.empty();
  sending_ = stream;
  receiving_ = two ? second_ : stream;
  if (two) follow(second_, stream, fork_);
  for (auto& left : operations_) left.clear();  // left from a call that failed
  run_copies(work, slot_bytes_, *this);
  flush(true);
  flush(false);
  if (two) follow(stream, second_, join_);
}

void CopyEngine::tell_of_kernels(CollectiveKind kind, const char* why) {
  const unsigned bit = 1u << static_cast<unsigned>(kind);
  if ((logged_.load(std::memory_order_relaxed) & bit) != 0) return;
  if ((logged_.fetch_or(bit) & bit) != 0) return;
  WEFT_INFO(kTuning, "rank {}: {} runs in kernels, {}", rank_, name(kind), why);
}

void CopyEngine::stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

void CopyEngine::peer_left(int rank) noexcept {
  {
    std::lock_guard lock(mutex_);
    gone_ |= 1u << rank;
    // The rank may have set a word just before it left.
    seen_at_ = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}

// Returns an error_word() if a stream has waited too long, or for a rank that left; otherwise 0.
// While data moves, some word changes. A rank's writes from before it left are visible after
// kHeldUpSeconds. Other work may delay a stream between its wait and its next write.
uint64_t CopyEngine::waited_in_vain(std::chrono::steady_clock::time_point now) {
  constexpr double kHeldUpSeconds = 1;
  CopyBoard board;
  const auto* from = reinterpret_cast<const volatile uint32_t*>(board_);
  auto* to = reinterpret_cast<uint32_t*>(&board);
  for (size_t i = 0; i < sizeof board / sizeof *to; i++) to[i] = from[i];
  if (std::memcmp(&board, &seen_, sizeof board) != 0) {
    seen_ = board;
    seen_at_ = now;
    return 0;
  }
  const double waited = std::chrono::duration<double>(now - seen_at_).count();
  for (const uint32_t waiting : {board.waiting[1], board.waiting[0]}) {
    if (waiting == 0) continue;
    const int peer = static_cast<int>(waiting) - 1;
    if ((gone_ >> peer & 1) != 0 && waited > kHeldUpSeconds)
      return error_word({KernelError::kLeft, peer});
    if (timeout_s_ > 0 && waited > timeout_s_) return error_word({KernelError::kTimeout, peer});
    if (const auto ns = static_cast<uint64_t>(waited * 1e9); ns > kLongWaitNs)
      __atomic_store_n(&flags_->wait, wait_word(peer, ns), __ATOMIC_SEQ_CST);
  }
  return 0;
}

// Calls no CUDA function, because it must work while everything waits. Released streams run on and
// clear words again. So the guard keeps setting them while the engine lives.
void CopyEngine::stand_guard() {
  using std::chrono::steady_clock;
  constexpr auto kRelease = std::chrono::microseconds(200);
  constexpr double kWatch = 0.05;  // seconds; a kernel cannot wake the guard
  const auto watch = std::chrono::microseconds(static_cast<int64_t>(
      (timeout_s_ > 0 ? std::clamp(timeout_s_ / 20, 0.001, kWatch) : kWatch) * 1e6));
  std::unique_lock lock(mutex_);
  seen_at_ = steady_clock::now();
  while (!leaving_) {
    stopped_ = stopped_ || __atomic_load_n(&flags_->stop, __ATOMIC_SEQ_CST) != 0;
    if (stopped_) {
      for (size_t peer = 0; peer < ends_.size(); peer++)
        for (int slot = 0; slot < kCopySlots; slot++) {
          board_->full[peer][slot] = 1;
          board_->empty[peer][slot] = 1;
        }
      changed_.wait_for(lock, kRelease);
      continue;
    }
    changed_.wait_for(lock, watch);
    const uint64_t error = stopped_ ? 0 : waited_in_vain(steady_clock::now());
    if (error == 0) continue;
    // Keeps an error that a kernel reported first.
    uint64_t none = 0;
    __atomic_compare_exchange_n(&flags_->error, &none, error, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    __atomic_store_n(&flags_->stop, 1, __ATOMIC_SEQ_CST);
  }
}

}  // namespace weft::cuda
