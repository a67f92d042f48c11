// Runs programs on a GPU: one kernel per operation on the caller's stream. Users of this header
// need no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "include/nccl.h"
#include "src/base/handles.h"
#include "src/exec/cuda/gpu_message.h"
#include "src/exec/cuda/one_sided_launcher.h"
#include "src/exec/datatype.h"
#include "src/exec/kernel_times.h"
#include "src/exec/one_round_shape.h"
#include "src/exec/operation.h"
#include "src/exec/stream_gate.h"
#include "src/schedule/program.h"
#include "src/schedule/verify.h"
#include "src/transport/lane_post.h"
#include "src/transport/nic_buffers.h"

namespace weft::cuda {

// True if this process has a GPU and WEFT_HOST_MODE does not forbid it.
bool available();
int current_device();
// PCI bus id, dddd:bb:dd.f in lower case; empty: unknown.
std::string bus_id(int device);
// 13000 for CUDA 13.0; 0: there is no driver.
int driver_version();
// The toolkit that the library was built with, in the same form; 0: built without CUDA.
int runtime_version();

// Whether kernels can read at this address.
bool on_device(const void* pointer);

// Device memory for ncclMemAlloc.
void* allocate(size_t size);
void release(void* pointer);

class RankBlocks;

struct GpuOptions {
  int rank = 0, nranks = 1;
  int device = 0;
  int max_ctas = 0;            // 0: as many as fit
  uint64_t process = 0;        // identifies the process
  int sharing = 1;             // ranks of this process on this GPU, including this one
  uint64_t group = 0;          // identifies the communicator, the same on all ranks
  uint64_t issuer = 0;         // identifies the thread that makes its calls; see launch_slot.h
  bool shares_blocks = false;  // it takes the slot of another communicator
  bool one_process = true;     // all ranks share this address space
  double timeout_s = 0;        // 0: kernels wait for ever
  size_t scratch_bytes = 0;    // scratch memory that all ranks can access; 0: chosen
  bool one_host = true;
  bool net_lanes = false;     // of several hosts, and lanes reach the others through posts
  bool cpus_copy = false;     // these posts: so large messages cost them less
  size_t cta_bytes = 0;       // data per thread block before another block joins
  bool graph_mixing = true;   // see LaunchOrder
  bool count_graphs = false;  // see graphs()
  bool copy_engines = false;  // move data without thread blocks if possible
  // Lanes: the size of a FIFO and its number of messages (0: chosen), and whether memory is ordered
  // for several GPUs even if there is only one.
  size_t lane_fifo_bytes = 0;
  int lane_slots = 0;
  size_t eager_bytes = 0;   // see LaneRoom
  size_t packet_bytes = 0;  // the largest arrays in packets; 0: none
  bool system_scope = false;
  bool straight = true;  // messages may go straight to the peer's buffers
  // Memory that nobody registered: whether processes share it, and how many bytes.
  bool share_buffers = true;
  size_t share_bytes = 0;
};

// The data that ranks exchange at init.
struct GpuPeer {
  uint64_t process = 0;  // ranks with the same value share the address space
  uint64_t memory = 0;   // address of its memory block, in its own process
  char handle[64] = {};  // CUDA IPC handle of the memory block, for other processes
  char gpu[16] = {};     // UUID: shows which ranks share a GPU
  int32_t device = 0;    // in its own process's numbering
  int32_t max_ctas = 0;
  bool asks_copies = false, shares_blocks = false;
  uint64_t copies_at = 0, copy_bytes = 0;  // stage of the copy engines; 0: not usable
};

struct GpuCall {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0, stride = 0;  // as in Operation
  Reduction reduction;
  uint32_t signature = 0;
  float *input_losses = nullptr, *output_losses = nullptr;  // as in Operation

  // Bytes from the first to the last element of a buffer; 0: it has no blocks.
  size_t span(int blocks) const {
    const size_t between = blocks > 1 ? static_cast<size_t>(blocks - 1) * stride : 0;
    return blocks > 0 ? (between + count) * element_size(reduction.type) : 0;
  }
};

// A thread block's part of a program with FIFOs in host memory. The operation is the same as on the
// host. Ports are numbers as in connect_rings().
struct GpuRingJob {
  Operation operation;
  uint16_t lane = 0;
  uint16_t next = 0;  // the job that the block does after this one; 0: none
  std::vector<size_t> sends, receives;
};
// A one-round program with FIFOs in host memory, which needs no interpreter. Ports are by rank.
struct GpuRingExchange {
  Operation operation;
  OneRoundShape shape;
  std::vector<size_t> ports;
};

// Rings for posts to ranks of other hosts: equally many per rank, nullptr for ranks of this host.
// `owners` keep them.
struct GpuPosts {
  std::vector<LanePostRing*> rings;
  std::span<std::byte> data;  // GPU memory for large messages; empty: they are in the area
  std::shared_ptr<NicBuffers> buffers;  // nullptr: NICs reach none of the caller's
  bool hosts_reach = false;             // the GPUs of each host reach each other
  std::vector<std::shared_ptr<const void>> owners;
};

// Device memory for calls that the communicator itself makes, all zero at first, and a stream for
// them. `owner` keeps both.
struct OwnBuffer {
  std::byte* data = nullptr;
  cudaStream_t stream = nullptr;
  std::shared_ptr<const void> owner;
};

// A long wait: the rank waited for ("" if none), the time so far, and a hint ("" if none).
struct LongWait {
  std::string whom;
  double seconds = 0;
  std::string hint;
  int peer = -1;
};

// What a kernel found ("" if nothing), in which call (-1: a send or receive, or not known; modulo
// kCallNumbers) and step (-1: not known).
inline constexpr uint64_t kCallNumbers = (uint64_t{1} << 24) - 1;
struct GpuError {
  std::string text;
  int64_t call = -1;
  int step = -1;
};

// A program made ready for kernels. Belongs to the executor that prepared it.
class GpuPlan;
class LanePlan;
struct StepRange;

// One rank's part. One thread at a time calls it; stop() and error() from any thread.
class GpuExecutor {
 public:
  struct State;

  explicit GpuExecutor(const GpuOptions& options);
  ~GpuExecutor();
  GpuExecutor(const GpuExecutor&) = delete;
  GpuExecutor& operator=(const GpuExecutor&) = delete;

  // Called once.
  GpuPeer describe();
  // This rank's thread blocks, for agree_on_blocks(). Afterwards use_blocks() says how many all
  // ranks use. Between describe() and connect().
  RankBlocks& blocks();
  void use_blocks(int blocks);
  // Returns a '1' for every rank whose memory this rank's GPU can access, and a '0' for the others.
  // `linked`: ranks for which it tries; nullptr: all. `boards`: kBoardBytes of memory per rank that
  // the ranks of a host share, for registrations and copy engines. `owner` keeps that memory.
  // `borrow` asks a peer in another process for a descriptor that it lends.
  using Borrow = std::function<std::pair<Fd, uint64_t>(int peer, uint64_t id)>;
  std::string connect(std::span<const GpuPeer> peers, std::span<std::byte* const> boards,
                      std::shared_ptr<const void> owner, Borrow borrow,
                      const std::function<bool(int)>& linked);
  // With what all ranks returned. Pairs that lack access in one direction use `areas`: host memory
  // per rank, of area_bytes(). Ranks of other hosts have none here. They are reached by `posts`.
  void settle(std::span<const std::string> reach, std::span<std::byte* const> areas,
              const GpuPosts& posts);
  static size_t area_bytes(int nranks, size_t scratch_bytes, bool net_lanes);
  // The part of an area that holds words and no data.
  static size_t area_words_bytes(int nranks);
  // All ranks reach each other, and are few enough for kernels that need that.
  bool complete() const;
  int device() const;
  bool one_device() const;  // all ranks are on one device
  static constexpr size_t kBoardBytes = 1 << 20;

  // Kernels from now on. Above 0: blocks that wait for an SM go before others; below: after them.
  void set_priority(int priority);

  // For peers whose memory cannot be accessed: FIFOs in host memory, kept by `owners`. The other
  // end must poll: it gets no bell.
  void connect_rings(std::span<const SendPort> sends, std::span<const RecvPort> receives,
                     std::vector<std::shared_ptr<const void>> owners);
  // Called when all operations are done.
  void disconnect_rings() noexcept;

  // Init: every rank writes into every peer's memory. Then all meet, and each rank checks its own.
  void write_probes();
  // The first rank whose write did not arrive; -1 if all arrived.
  int missing_probe() const;

  // For programs that access peers' memory. `fallback` runs instead if some rank's buffers are
  // private to its process. Returns nullptr if a program does not fit into a kernel.
  std::shared_ptr<GpuPlan> prepare(const Program& program, const Program* fallback);
  // For small data: the program's FIFOs use the low-latency protocol. `one_round`: the programs of
  // all ranks have a one_round_shape() and need no interpreter. All ranks must pass the same value,
  // because the two kinds split data into different messages.
  std::shared_ptr<GpuPlan> prepare_packets(const Program& program, bool one_round);
  bool takes_packets(const Program& program) const;  // whether they run it, if not as one round

  // For any schedule whose ranks send messages, in the launch that runs it first. Throws Error if
  // no kernel can run it. `also`: another proof, by which other ranks may run it.
  std::shared_ptr<LanePlan> prepare_lanes(const VerifiedSchedule& schedule,
                                          const VerifiedSchedule* also, int fifo_depth);
  struct LaneShape {
    size_t lanes = 0, steps = 0, messages = 0, straight = 0;  // of this rank
    int chunks = 1;
    bool uniform_only = false, partial_sums = false;
  };
  static LaneShape shape_of(const LanePlan& plan);
  // Device memory, all zero for the current launch and later ones. Its last owner lets go when no
  // launch uses it.
  std::shared_ptr<float> zeros(size_t floats);

  // Made while no kernel waits for a rank of this process: CUDA may wait for kernels when it
  // allocates.
  OwnBuffer own_buffer(size_t bytes);

  // A launch is begin(), any number of run()s on the first stream, and end(). The other streams are
  // joined and wait. The caller keeps the returned pass until end().
  struct Launch {
    StreamGate::Pass pass;
    std::unique_lock<std::mutex> slot;
  };
  [[nodiscard]] Launch begin(std::span<const cudaStream_t> streams);
  bool captured() const;  // the launch becomes part of a graph and runs when the graph does
  void run(GpuPlan& plan, const GpuCall& call);
  void run_lanes(LanePlan& plan, const GpuCall& call);
  // Where not all ranks reach each other, or they are many. At most one per peer and direction.
  void run_messages(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives);
  static constexpr size_t kMostMessages = 32;  // in each direction; see lane_messages.h
  // All messages of a group, in order. See into_kernels().
  void run_send_recvs(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives);
  // One kernel runs all jobs. The first `blocks` of them begin, in parallel; others are the `next`
  // of one. The operations differ only in buffers and counts.
  void run_rings(const Program& program, std::span<const GpuRingJob> jobs, size_t blocks);
  // The same for small messages, in a smaller kernel. Returns false if it did nothing.
  bool run_ring_exchange(const GpuRingExchange& exchange);
  // The launch goes on when the word is not 0 (and less than 2^31), or sets it to 1.
  void wait_word(const uint32_t* word);
  void write_word(uint32_t* word);
  void end(std::span<const cudaStream_t> streams);
  // Around run()s of a launch that is not captured: the times of their kernels.
  KernelTimes begin_timing();
  void end_timing(const KernelTimes& times);

  // Whether copy engines move messages of this size in operations of this kind. If so, callers use
  // copy() and copy_send_recvs() instead of run() and run_send_recvs(). The same on all ranks.
  bool copies(CollectiveKind kind, size_t bytes);
  void copy(const Collective& collective, const GpuCall& call);
  void copy_send_recvs(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives);

  // Launched work is not done. Any thread.
  bool busy() const;
  // Its device memory.
  size_t device_bytes() const;
  // Graphs that hold launches: all that captured some, or with `count_graphs` those that still
  // exist. They use its memory. Any thread.
  int graphs() const;

  // Memory that other processes may access in place, from some later call on. Registrations of the
  // same memory are counted.
  void register_memory(const void* pointer, size_t size);
  void deregister_memory(const void* pointer);

  // For one-sided calls. Valid as long as the executor lives.
  SignalWords signal_words() const;
  // Whether kernels of this rank can access the memory of a peer's GPU. After settle().
  bool reaches(int peer) const;

  // Every waiting kernel gives up, now and later.
  void stop() noexcept;
  // A rank will send nothing more. Kernels that still wait for it end with an error. Any thread.
  void peer_left(int rank) noexcept;
  // The long wait that a kernel or stream has reported since the last call. Any thread.
  LongWait long_wait();
  // The error that a kernel found; empty if none.
  GpuError error() const;
  // The number of the call that is launched next, among the collectives of the communicator; -1: it
  // has none. For error().
  void number_call(int64_t number);
  // Thread blocks of the largest kernel that was launched since the last call; 0: there was none.
  int take_blocks();
  // Waits until all launched work is done.
  void synchronize() noexcept;

 private:
  std::shared_ptr<GpuPlan> prepare_one_round(const Program& program);
  // `early`: the kernel waits for its predecessor itself.
  void launch(const void* kernel, uint64_t ctas, uint64_t threads, void* arguments, bool early,
              size_t shared_bytes = 0) const;
  void run_packets(GpuPlan& plan, const GpuCall& call);
  bool run_small_messages(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives);
  void share_memory(std::span<std::byte* const> boards, std::span<const uint64_t> processes,
                    Borrow borrow);
  void connect_copies(std::span<const GpuPeer> peers, std::span<std::byte* const> boards);
  void run_one_round(GpuPlan& plan, const GpuCall& call);
  void slice_range(StepRange& range, bool uniform_only, uint64_t count, uint32_t element,
                   uint64_t ctas) const;
  // `place(message)`: where the data to send lies, for the peer.
  template <typename Place>
  void launch_send_recvs(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives,
                         Place place);

  std::unique_ptr<State> state_;
};

}  // namespace weft::cuda
