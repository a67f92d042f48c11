// Set-up, connections and the order of launches. See launch.cc for the launches themselves.
#include "src/exec/cuda/gpu_executor.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"
#include "src/exec/cuda/ipc_memory.h"
#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/lane_messages.h"

namespace weft::cuda {
namespace {

// Of a message to another host, before another instance of a lane pays. No NIC has been measured.
// Over sockets on loopback, collectives of 2 MiB between two hosts of four processes, and four of
// two, took 325 and 660 us (all_gather), 325 and 640 (reduce_scatter) with messages of 64 KiB, and
// 225 and 545, 250 and 450 with 128.
constexpr uint64_t kLeastNetBytes = 64 << 10, kLeastSocketBytes = 128 << 10;
constexpr uint64_t kMostSlotBytes = 256 << 10;  // of FIFOs whose size is chosen

bool same_gpu(const GpuPeer& a, const GpuPeer& b) {
  return std::memcmp(a.gpu, b.gpu, sizeof a.gpu) == 0;
}

// Lets kernels on this device load and store in a peer's GPU, within this process. False: they
// cannot.
bool enable_access(int device, const GpuPeer& peer) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device, peer.device), "cudaDeviceCanAccessPeer");
  if (can == 0) return false;
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer.device, 0);
  cudaGetLastError();
  return enabled == cudaSuccess || enabled == cudaErrorPeerAccessAlreadyEnabled;
}

// "4d6f..."; the same in all processes.
std::string uuid_text(int device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::string text;
  for (const char byte : properties.uuid.bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

const char* kind_of(int peer, int nranks) { return peer < nranks ? "peer" : "CPU node"; }

void warn_about_queues(int sharing, int device) {
  const char* text = secure_getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int queues = text != nullptr ? std::max(1, std::atoi(text)) : 8;
  if (sharing > 1 && sharing >= queues)
    WEFT_WARN(
        "{} ranks of this process share GPU {}, which has {} hardware queues: a kernel may be "
        "queued behind one that waits for it. Set CUDA_DEVICE_MAX_CONNECTIONS=32 before the "
        "program starts",
        sharing, device, queues);
}

// Counts a graph until it and all its instances are gone. CUDA then keeps account of every launch
// of the graph: ranks start apart, and small calls took up to 40% longer.
void count_graph(cudaGraph_t graph, const std::shared_ptr<std::atomic<int>>& count) {
  using Count = std::shared_ptr<std::atomic<int>>;
  auto held = std::make_unique<Count>(count);
  cudaUserObject_t object = nullptr;
  check(cudaUserObjectCreate(
            &object, held.get(),
            [](void* pointer) {
              const std::unique_ptr<Count> ended(static_cast<Count*>(pointer));
              (*ended)->fetch_sub(1);
            },
            1, cudaUserObjectNoDestructorSync),
        "cudaUserObjectCreate");
  held.release();  // the object's
  check(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove),
        "cudaGraphRetainUserObject");
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::of(uint64_t group) {
  static std::mutex mutex;
  static std::map<uint64_t, std::weak_ptr<SharedMemory>> all;
  std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<SharedMemory> shared = all[group].lock();
  if (shared != nullptr) {
    DeviceStore::instance().expect_several();
  } else {
    all[group] = shared = std::make_shared<SharedMemory>();
  }
  return shared;
}

std::byte* SharedMemory::allocate(size_t bytes, bool others_write) {
  PooledResource memory(DeviceStore::Kind::kDeviceMemory, bytes);
  if (others_write) memory.forbid_reuse();
  std::lock_guard lock(mutex_);
  blocks_.push_back(std::move(memory));
  return static_cast<std::byte*>(blocks_.back().get());
}

void SharedMemory::hold(std::shared_ptr<const void> owner) {
  std::lock_guard lock(mutex_);
  owners_.push_back(std::move(owner));
}

void SharedMemory::pin(std::byte* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (std::find(pinned_.begin(), pinned_.end(), memory) != pinned_.end()) return;
  check(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
        "cudaHostRegister");
  pinned_.push_back(memory);
}

SharedMemory::~SharedMemory() {
  if (pinned_.empty()) return;
  int device = 0;
  cudaGetDevice(&device);
  DeviceStore::instance().free_when_quiet(
      device, [pinned = std::move(pinned_), owners = std::move(owners_)] {
        for (std::byte* memory : pinned) cudaHostUnregister(memory);
      });
}

GpuExecutor::GpuExecutor(const GpuOptions& options) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.options = options;
  const SetupScope scope(options.device);
  s.own_stream = PooledResource(DeviceStore::Kind::kStream);
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, options.device),
        "cudaDeviceGetAttribute");
  s.blocks = std::make_unique<RankBlocks>(BlockRegistry::of(uuid_text(options.device), sms),
                                          options.device, options.issuer, options.group);
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, options.device),
        "cudaDeviceGetAttribute");
  load_kernels(options.device, s.own_stream.stream());
  // Both the GPU and the code loaded for it must support early start.
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, probe_kernel_function()), "cudaFuncGetAttributes");
  s.starts_early = major >= 9 && attributes.ptxVersion >= 90;
  check(cudaDeviceGetStreamPriorityRange(&s.least_urgent, &s.most_urgent),
        "cudaDeviceGetStreamPriorityRange");
  s.comm.rank = options.rank;
  s.comm.nranks = options.nranks;
  s.comm.timeout_ns = static_cast<uint64_t>(options.timeout_s * 1e9);
  s.sizes = memory_sizes(options);
  if (options.nranks <= kMaxRanks)
    s.comm.ports = static_cast<uint32_t>(kPacketChannels * options.nranks);
  s.comm.packet_ctas = s.sizes.packet_ctas;
  s.words_at = s.sizes.words_at;
  s.comm.stage = s.sizes.mailbox;
  s.shared = SharedMemory::of(options.group);
  s.memory = s.shared->allocate(s.sizes.total(), !options.one_process);
  WEFT_INFO(kInit, "rank {}: {} MiB of GPU memory", options.rank, s.sizes.total() >> 20);
  s.mailbox = reinterpret_cast<Mailbox*>(s.memory);
  check(cudaMemsetAsync(s.memory, 0, s.comm.stage, s.own_stream.stream()), "cudaMemsetAsync");
  s.kept_flags = PooledResource(DeviceStore::Kind::kHostMemory, host_flags_bytes(options.nranks));
  s.flags = static_cast<HostFlags*>(s.kept_flags.get());
  std::memset(s.kept_flags.get(), 0, host_flags_bytes(options.nranks));
  s.comm.flags = s.flags;
  s.lane_counters = PooledResource(DeviceStore::Kind::kDeviceMemory, s.counter_bytes());
  check(cudaMemsetAsync(s.lane_counters.get(), 0, s.counter_bytes(), s.own_stream.stream()),
        "cudaMemsetAsync");
  s.plan_memory = PooledResource(DeviceStore::Kind::kDeviceMemory, State::kPlanBytes);
  s.plan_copy = PooledResource(DeviceStore::Kind::kHostMemory, State::kPlanBytes);
  s.message_memory = PooledResource(DeviceStore::Kind::kDeviceMemory, kMessageResolvedBytes);
  s.room.pool_bytes =
      std::min(s.sizes.stage, lane_pool_bytes(options.scratch_bytes, options.net_lanes));
  s.room.fifo_bytes = options.lane_fifo_bytes;
  if (options.net_lanes) {
    s.room.least_bytes = options.cpus_copy ? kLeastSocketBytes : kLeastNetBytes;
    s.room.large_messages = options.cpus_copy;
    // FIFOs to other hosts lie in pinned memory and may fill it; scratch memory never does.
    s.room.scratch_bytes = s.sizes.stage - s.room.pool_bytes;
    s.room.eager_bytes = std::min<uint64_t>(round_up(options.eager_bytes, 4096),
                                            s.room.pool_bytes / 8 / 4096 * 4096);
    s.room.pool_bytes -= 2 * s.room.eager_bytes;
  }
  if (options.lane_slots > 0)
    s.room.slots = static_cast<uint32_t>(options.lane_slots);
  else
    s.room.most_slot_bytes = kMostSlotBytes;
  s.order = std::make_shared<LaunchOrder>(options.graph_mixing);
  if (options.rank == 0) warn_about_queues(options.sharing, options.device);
  if (options.copy_engines)
    s.copies =
        std::make_unique<CopyEngine>(options.rank, options.device, options.timeout_s, s.flags);
  check(cudaStreamSynchronize(s.own_stream.stream()), "clearing the mailbox");
}

GpuExecutor::~GpuExecutor() {
  State& s = *state_;
  const SetupScope scope(s.options.device, std::nothrow);
  s.copies.reset();
  s.registrations.reset();
  s.rings.reset();
  if (!s.opened.empty())
    DeviceStore::instance().free_when_quiet(s.options.device, [opened = std::move(s.opened)] {
      for (void* memory : opened) cudaIpcCloseMemHandle(memory);
    });
  s.shared.reset();
  s.order.reset();
  s.slot.reset();
  s.blocks.reset();
  cudaGetLastError();
}

GpuPeer GpuExecutor::describe() {
  State& s = *state_;
  GpuPeer peer;
  peer.process = s.options.process;
  peer.memory = reinterpret_cast<uint64_t>(s.memory);
  peer.device = s.options.device;
  peer.max_ctas = s.options.max_ctas;
  if (!s.options.one_process) {
    const SetupScope scope(s.options.device);
    cudaIpcMemHandle_t handle;
    check(cudaIpcGetMemHandle(&handle, s.memory), "cudaIpcGetMemHandle");
    static_assert(sizeof handle == sizeof peer.handle);
    std::memcpy(peer.handle, &handle, sizeof handle);
  }
  peer.shares_blocks = s.options.shares_blocks;
  peer.asks_copies = s.copies != nullptr;
  if (s.copies != nullptr && s.copies->missing().empty()) peer.copy_bytes = s.sizes.copy_stage;
  peer.copies_at = s.sizes.mailbox + s.sizes.stage + s.sizes.send_stage;
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, s.options.device), "cudaGetDeviceProperties");
  std::memcpy(peer.gpu, &properties.uuid, sizeof peer.gpu);
  return peer;
}

void GpuExecutor::set_priority(int priority) { state_->priority = priority; }

int GpuExecutor::device() const { return state_->options.device; }
bool GpuExecutor::one_device() const { return state_->comm.one_device; }

size_t GpuExecutor::area_bytes(int nranks, size_t scratch_bytes, bool net_lanes) {
  const size_t pool = lane_pool_bytes(scratch_bytes, net_lanes);
  return lane_area_pool(nranks) + (net_lanes ? 2 * pool + message_packets_bytes(nranks) : pool);
}
size_t GpuExecutor::area_words_bytes(int nranks) { return lane_area_pool(nranks); }

bool GpuExecutor::complete() const {
  const State& s = *state_;
  return s.options.nranks <= kMaxRanks && s.all_reach;
}

std::string GpuExecutor::connect(std::span<const GpuPeer> peers, std::span<std::byte* const> boards,
                                 std::shared_ptr<const void> owner, Borrow borrow,
                                 const std::function<bool(int)>& linked) {
  State& s = *state_;
  const SetupScope scope(s.options.device);
  const GpuPeer& mine = peers[static_cast<size_t>(s.options.rank)];
  std::vector<uint64_t> processes;
  std::string reach(peers.size(), '1');
  for (size_t p = 0; p < peers.size(); p++) {
    const GpuPeer& peer = peers[p];
    processes.push_back(peer.process);
    const bool here_too = peer.process == mine.process;
    s.comm.one_device = s.comm.one_device && same_gpu(peer, mine);
    s.comm.one_process = s.comm.one_process && here_too;
    auto* memory = reinterpret_cast<std::byte*>(peer.memory);
    const bool other = static_cast<int>(p) != s.options.rank;
    if ((linked && other && !linked(static_cast<int>(p))) ||
        (here_too && !same_gpu(peer, mine) && !enable_access(s.options.device, peer))) {
      memory = nullptr;
    } else if (!here_too) {
      void* mapped = nullptr;
      const cudaError_t error = open_ipc(peer.handle, &mapped);
      if (error == cudaSuccess) {
        s.opened.push_back(mapped);
      } else {
        mapped = nullptr;
        WEFT_INFO(kInit, "rank {} cannot map the memory of rank {}: {}", s.options.rank, p,
                  cudaGetErrorString(error));
      }
      memory = static_cast<std::byte*>(mapped);
    }
    s.blocks_of.push_back(memory);
    if (memory == nullptr) reach[p] = '0';
    if (p < kMaxRanks) s.comm.mailboxes[p] = reinterpret_cast<Mailbox*>(memory);
  }
  s.areas_of.assign(peers.size(), nullptr);
  s.remote.assign(peers.size(), false);
  s.shared->hold(std::move(owner));
  if (peers.size() > kMaxRanks && !s.options.net_lanes) return reach;
  if (!s.comm.one_process) share_memory(boards, processes, std::move(borrow));
  if (s.options.net_lanes) return reach;
  if (reach.find('0') == std::string::npos) connect_copies(peers, boards);
  return reach;
}

// The GPU's end of the rings for posts.
void GpuExecutor::State::connect_posts(const GpuPosts& posts, std::byte* area) {
  const size_t bytes = posts.rings.size() * sizeof(Postbox);
  lane_streams = static_cast<uint32_t>(posts.rings.size()) / static_cast<uint32_t>(options.nranks);
  postboxes = PooledResource(DeviceStore::Kind::kDeviceMemory, bytes);
  const PooledResource pinned(DeviceStore::Kind::kHostMemory, bytes);
  auto* boxes = static_cast<Postbox*>(pinned.get());
  for (size_t i = 0; i < posts.rings.size(); i++) {
    boxes[i] = {};
    boxes[i].area = area;
    if (posts.rings[i] == nullptr) continue;
    shared->pin(reinterpret_cast<std::byte*>(posts.rings[i]), sizeof(LanePostRing));
    void* ring = nullptr;
    check(cudaHostGetDevicePointer(&ring, posts.rings[i], 0), "cudaHostGetDevicePointer");
    boxes[i].ring = static_cast<LanePostRing*>(ring);
  }
  for (const auto& owner : posts.owners) shared->hold(owner);
  check(cudaMemcpyAsync(postboxes.get(), boxes, bytes, cudaMemcpyHostToDevice, own_stream.stream()),
        "writing the postboxes");
  check(cudaStreamSynchronize(own_stream.stream()), "writing the postboxes");
}

void GpuExecutor::settle(std::span<const std::string> reach, std::span<std::byte* const> areas,
                         const GpuPosts& posts) {
  State& s = *state_;
  const SetupScope scope(s.options.device);
  const auto me = static_cast<size_t>(s.options.rank);
  const auto area_of = [&](size_t rank) {
    s.shared->pin(areas[rank],
                  area_bytes(s.options.nranks, s.options.scratch_bytes, s.options.net_lanes));
    void* device = nullptr;
    check(cudaHostGetDevicePointer(&device, areas[rank], 0), "cudaHostGetDevicePointer");
    return static_cast<std::byte*>(device);
  };
  for (size_t p = 0; p < reach.size(); p++) {
    if (p == me || (reach[me][p] == '1' && reach[p][me] == '1')) continue;
    s.remote[p] = areas[p] == nullptr;
    if (!s.remote[p]) s.areas_of[p] = area_of(p);
    s.areas_of[me] = area_of(me);
    s.blocks_of[p] = nullptr;
  }
  if (!posts.rings.empty()) s.connect_posts(posts, s.areas_of[me]);
  s.net_bytes = posts.data.size();
  if (s.net_bytes > 0)
    s.gpu_shift = posts.data.data() - (s.areas_of[me] + lane_area_pool(s.options.nranks));
  if (posts.buffers != nullptr && s.registrations != nullptr) {
    s.registrations->reach_nics(posts.buffers);
    s.nics_reach_buffers = true;
  }
  s.all_reach = std::all_of(reach.begin(), reach.end(), [](const std::string& ranks) {
    return ranks.find('0') == std::string::npos;
  });
  // All ranks use packets and copy engines, or none does.
  s.room.packet_bytes =
      packet_messages(s.options.net_lanes ? posts.hosts_reach : s.all_reach, s.options.net_lanes,
                      s.room.eager_bytes > 0, s.options.packet_bytes);
  if (!s.all_reach) s.copies.reset();
}

RankBlocks& GpuExecutor::blocks() { return *state_->blocks; }

void GpuExecutor::use_blocks(int blocks) {
  State& s = *state_;
  const SetupScope scope(s.options.device);
  s.slot = s.blocks->settle(s.order);
  s.order = s.slot->order;
  s.max_ctas = blocks;
  s.room.blocks = static_cast<uint32_t>(blocks);
  s.early_ctas = blocks / 2;  // two kernels that start early overlap
}

void GpuExecutor::write_probes() {
  State& s = *state_;
  const SetupScope scope(s.options.device);
  const size_t bytes = s.blocks_of.size() * sizeof(std::byte*);
  s.peer_words = PooledResource(DeviceStore::Kind::kDeviceMemory, bytes);
  const PooledResource pinned(DeviceStore::Kind::kHostMemory, bytes);
  auto* words = static_cast<LaneWords**>(pinned.get());
  for (size_t p = 0; p < s.blocks_of.size(); p++)
    words[p] = s.blocks_of[p] == nullptr
                   ? nullptr
                   : reinterpret_cast<LaneWords*>(s.blocks_of[p] + s.words_at);
  check(cudaMemcpyAsync(s.peer_words.get(), words, bytes, cudaMemcpyHostToDevice,
                        s.own_stream.stream()),
        "probing peers' memory");
  ProbeArguments arguments{static_cast<LaneWords* const*>(s.peer_words.get()), s.options.rank,
                           s.options.nranks};
  void* parameters[] = {&arguments};
  check(cudaLaunchKernel(probe_kernel_function(), dim3(1), dim3(128), parameters, 0,
                         s.own_stream.stream()),
        "probing peers' memory");
  check(cudaStreamSynchronize(s.own_stream.stream()), "probing peers' memory");
}

int GpuExecutor::missing_probe() const {
  const State& s = *state_;
  const SetupScope scope(s.options.device);
  const size_t bytes = s.blocks_of.size() * sizeof(uint32_t);
  const PooledResource kept(DeviceStore::Kind::kHostMemory, bytes);
  const auto* seen = static_cast<const uint32_t*>(kept.get());
  check(
      cudaMemcpyAsync(kept.get(),
                      reinterpret_cast<LaneWords*>(s.memory + s.words_at)->probes(s.options.nranks),
                      bytes, cudaMemcpyDeviceToHost, s.own_stream.stream()),
      "reading the probes");
  check(cudaStreamSynchronize(s.own_stream.stream()), "reading the probes");
  for (int peer = 0; peer < s.options.nranks; peer++)
    if (s.blocks_of[static_cast<size_t>(peer)] != nullptr &&
        seen[peer] != probe_value(peer, s.options.rank))
      return peer;
  return -1;
}

SignalWords GpuExecutor::signal_words() const {
  const State& s = *state_;
  SignalWords words{s.options.device, s.options.rank, s.options.nranks, s.flags, s.comm.timeout_ns,
                    nullptr,          nullptr,        nullptr,          nullptr, {}};
  const auto at = [&](std::byte* block) {
    return reinterpret_cast<uint64_t*>(block + s.sizes.signals_at);
  };
  words.signals = at(s.memory);
  words.taken = words.signals + s.options.nranks;
  words.seen = words.taken + s.options.nranks;
  words.given = words.seen + s.options.nranks;
  for (int peer = 0; peer < s.options.nranks; peer++)
    words.peers.push_back(
        reaches(peer)
            ? at(peer == s.options.rank ? s.memory : s.blocks_of[static_cast<size_t>(peer)]) +
                  s.options.rank
            : nullptr);
  return words;
}

bool GpuExecutor::reaches(int peer) const {
  const State& s = *state_;
  const auto p = static_cast<size_t>(peer);
  return peer == s.options.rank || (p < s.blocks_of.size() && s.blocks_of[p] != nullptr);
}

GpuExecutor::Launch GpuExecutor::begin(std::span<const cudaStream_t> streams) {
  const DeviceScope scope(state_->options.device);
  Launch launch;
  if (state_->slot != nullptr) launch.slot = std::unique_lock(state_->slot->mutex);
  launch.pass = state_->order->begin(streams);
  const LaunchOrder& order = *state_->order;
  if (order.is_captured() && order.capture_number() != state_->counted_capture) {
    state_->graphs->fetch_add(1);
    if (state_->options.count_graphs) count_graph(order.graph(), state_->graphs);
    state_->counted_capture = order.capture_number();
  }
  if (state_->registrations != nullptr)
    state_->registrations->begin_launch(state_->order->is_captured());
  return launch;
}

bool GpuExecutor::captured() const { return state_->order->is_captured(); }

bool GpuExecutor::busy() const {
  const DeviceScope scope(state_->options.device);
  return !state_->order->is_done();
}

int GpuExecutor::graphs() const { return state_->graphs->load(); }

size_t GpuExecutor::device_bytes() const {
  const State& s = *state_;
  size_t bytes = s.sizes.total() + s.large_plan_bytes + s.net_bytes;
  for (const PooledResource* resource :
       {&s.lane_counters, &s.peer_words, &s.plan_memory, &s.message_memory, &s.postboxes})
    bytes += resource->bytes();
  return bytes;
}

void GpuExecutor::end(std::span<const cudaStream_t> streams) {
  const DeviceScope scope(state_->options.device);
  state_->order->end(streams);
  if (state_->registrations != nullptr) state_->registrations->end_launch(streams.front());
}

// A kernel that starts early would begin before the clock is read.
KernelTimes GpuExecutor::begin_timing() {
  const DeviceScope scope(state_->options.device);
  state_->order->forbid_early_start();
  return state_->clock.begin(state_->order->stream());
}

void GpuExecutor::end_timing(const KernelTimes& times) {
  const DeviceScope scope(state_->options.device);
  KernelClock::end(times, state_->order->stream());
  state_->order->forbid_early_start();
  state_->order->launched(false);
}

void GpuExecutor::stop() noexcept {
  __atomic_store_n(&state_->flags->stop, 1, __ATOMIC_SEQ_CST);
  if (state_->copies != nullptr) state_->copies->stop();
}

LongWait GpuExecutor::long_wait() {
  const uint64_t word = __atomic_exchange_n(&state_->flags->wait, 0, __ATOMIC_SEQ_CST);
  if (word == 0) return {};
  const int peer = waited_for(word);
  LongWait wait{fmt::format("{} {}", kind_of(peer, state_->options.nranks), peer), waited_s(word),
                "", peer};
  if (state_->options.sharing > 1 && peer < state_->options.nranks)
    wait.hint =
        "ranks of this process share the GPU: if the peer has made its call, that may be queued "
        "behind one that waits (use every stream once before, docs/using.md)";
  return wait;
}

GpuError GpuExecutor::error() const {
  const KernelFault fault = fault_of(__atomic_load_n(&state_->flags->error, __ATOMIC_SEQ_CST));
  const char* who = kind_of(fault.peer, state_->options.nranks);
  GpuError found{"", fault.call == kNoCall ? -1 : static_cast<int64_t>(fault.call), fault.step};
  switch (fault.error) {
    case KernelError::kNone:
      return {};
    case KernelError::kTimeout:
      found.text = fmt::format("waited {} s for {} {} in a kernel (WEFT_TIMEOUT)",
                               state_->options.timeout_s, who, fault.peer);
      break;
    case KernelError::kLeft:
      found.text = fmt::format(
          "rank {} has left (ncclCommDestroy) and does not take part in this call", fault.peer);
      break;
    default:
      found.text = fmt::format(
          "{} {} made another call than this rank: all ranks must make the same calls, with the "
          "same counts, types, operators and roots, in the same order",
          who, fault.peer);
  }
  return found;
}

static_assert(kCallNumbers == kNoCall);
void GpuExecutor::number_call(int64_t number) {
  state_->comm.call =
      number < 0 ? kNoCall : static_cast<uint32_t>(static_cast<uint64_t>(number) % kCallNumbers);
}

void GpuExecutor::peer_left(int rank) noexcept {
  if (rank >= state_->options.nranks) return;
  __atomic_fetch_or(gone_word(state_->flags, rank), 1u << (rank % 32), __ATOMIC_SEQ_CST);
  if (state_->copies != nullptr) state_->copies->peer_left(rank);
}

void GpuExecutor::synchronize() noexcept {
  const SetupScope scope(state_->options.device, std::nothrow);
  state_->order->synchronize();
  cudaGetLastError();
}

}  // namespace weft::cuda
