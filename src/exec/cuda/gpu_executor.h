// Runs programs on a GPU: one kernel per operation on the caller's stream. No CUDA header is needed
// to use this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "include/nccl.h"
#include "src/base/handles.h"
#include "src/exec/datatype.h"
#include "src/exec/one_round_shape.h"
#include "src/exec/operation.h"
#include "src/exec/stream_gate.h"
#include "src/schedule/program.h"

namespace weft::cuda {

// True when this process has a GPU to use (and WEFT_HOST_MODE does not forbid it).
bool available();
int current_device();
// PCI bus id, dddd:bb:dd.f in lower case; empty: it is not known.
std::string bus_id(int device);
// 13000 for CUDA 13.0; 0: there is no driver.
int driver_version();

// Whether kernels can read at this address.
bool on_device(const void* pointer);

// Device memory for ncclMemAlloc.
void* allocate(size_t size);
void release(void* pointer);

struct GpuOptions {
  int rank = 0, nranks = 1;
  int device = 0;
  int max_ctas = 0;          // 0: as many as fit
  uint64_t process = 0;      // tells processes apart
  int sharing = 1;           // ranks of this process on this GPU, with this one
  uint64_t group = 0;        // the communicator: the same on all its ranks
  bool one_process = true;   // all ranks share this address space
  double timeout_s = 0;      // 0: kernels wait for ever
  size_t scratch_bytes = 0;  // scratch memory that all ranks can reach; 0: chosen
  bool one_host = true;
  size_t cta_bytes = 0;       // data per thread block before another one joins
  bool graph_mixing = true;   // see LaunchOrder
  bool copy_engines = false;  // move data without thread blocks where that can be done
};

// What a rank tells the others at init.
struct GpuPeer {
  uint64_t process = 0;  // who shares the address space
  uint64_t memory = 0;   // where its block of memory is, in its own process
  char handle[64] = {};  // the same for other processes (CUDA IPC)
  char gpu[16] = {};     // UUID: which ranks share a GPU
  int32_t device = 0;    // in its own process's numbering
  int32_t max_ctas = 0;
  int32_t used_ctas = 0;  // of its GPU, by other communicators of its process
  int32_t sms = 0;        // multiprocessors of its GPU
  bool asks_copies = false;
  uint64_t copies_at = 0, copy_bytes = 0;  // stage of the copy engines; 0: they cannot be used
};

struct GpuCall {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  Reduction reduction;
  uint32_t signature = 0;
};

struct GpuMessage {
  void* pointer = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

// A thread block's part of a program whose FIFOs are rings: what it does, as for the host, and its
// ports by their numbers in connect_rings().
struct GpuRingJob {
  Operation operation;
  uint16_t lane = 0;
  std::vector<size_t> sends, receives;
};
// A program whose FIFOs are rings that needs no interpreter: the ports by rank.
struct GpuRingExchange {
  Operation operation;
  OneRoundShape shape;
  std::vector<size_t> ports;
};

// For whom something waits, "": for nobody, how long already, and what else is known, or "".
struct LongWait {
  std::string whom;
  double seconds = 0;
  std::string hint;
};

// A program made ready for kernels. Belongs to the executor that prepared it.
class GpuPlan;
struct StepRange;

// One rank's share. Calls come from one thread at a time, stop() and error() from any.
class GpuExecutor {
 public:
  explicit GpuExecutor(const GpuOptions& options);
  ~GpuExecutor();
  GpuExecutor(const GpuExecutor&) = delete;
  GpuExecutor& operator=(const GpuExecutor&) = delete;

  // Once. Counts on room for this rank's thread blocks until connect() knows how many they are.
  GpuPeer describe();
  // Throws when a peer's device cannot be reached. `boards`: memory of kBoardBytes that each rank
  // shares with the others of its host, for registrations and copy engines; `owner` keeps it.
  // `borrow`: asks a peer of another process for a descriptor that it lends.
  using Borrow = std::function<std::pair<Fd, uint64_t>(int peer, uint64_t id)>;
  void connect(std::span<const GpuPeer> peers, std::span<std::byte* const> boards,
               std::shared_ptr<const void> owner, Borrow borrow);
  int device() const;
  bool one_device() const;  // all ranks share it
  static constexpr size_t kBoardBytes = 64 << 10;

  // For peers whose memory cannot be reached: FIFOs in host memory, kept by `owners`. What is at
  // their other end needs no bell.
  void connect_rings(std::span<const SendPort> sends, std::span<const RecvPort> receives,
                     std::vector<std::shared_ptr<const void>> owners);
  // When all is done.
  void disconnect_rings() noexcept;

  // Init: every rank writes into every other's memory, all meet, and each looks at what arrived.
  void write_probes();
  // The first rank whose write did not arrive, -1 if all did.
  int missing_probe() const;

  // For programs that reach into memory; `fallback` runs instead when some rank's buffers are
  // private to its process. nullptr when a program does not fit into a kernel.
  std::shared_ptr<GpuPlan> prepare(const Program& program, const Program* fallback);
  // For small data: the program's FIFOs use the low-latency protocol.
  // `one_round`: the programs of all ranks have a one_round_shape(), and so they need no
  // interpreter. (A rank that went its own way would cut data into other messages than its peers.)
  std::shared_ptr<GpuPlan> prepare_packets(const Program& program, bool one_round);

  // A launch: begin(), any number of run()s on the first stream, end(). The other streams are
  // joined and wait. What begin() returns is to be kept until end().
  [[nodiscard]] StreamGate::Pass begin(std::span<const cudaStream_t> streams);
  bool captured() const;  // the launch becomes part of a graph, and runs when that does
  void run(GpuPlan& plan, const GpuCall& call);
  void run_send_recvs(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives);
  // One kernel, all jobs side by side; the operations differ only in buffers and counts.
  void run_rings(const Program& program, std::span<const GpuRingJob> jobs);
  // The same for small messages, in a smaller kernel; false: it has not been done.
  bool run_ring_exchange(const GpuRingExchange& exchange);
  void end(std::span<const cudaStream_t> streams);

  // Whether the copy engines move messages of this size in operations of this kind: copy() and
  // copy_send_recvs() instead of run() and run_send_recvs(). The same on all ranks.
  bool copies(CollectiveKind kind, size_t bytes);
  void copy(const Collective& collective, const GpuCall& call);
  void copy_send_recvs(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives);

  // Memory that other processes may use where it is, from some later call on. Registering the same
  // memory again counts.
  void register_memory(const void* pointer, size_t size);
  void deregister_memory(const void* pointer);

  // Makes every kernel that waits give up, now and later.
  void stop() noexcept;
  // A rank will do nothing more: what still waits for it ends with an error. Any thread.
  void peer_left(int rank) noexcept;
  // What a kernel or a stream has told of since the last time this was asked. Any thread.
  LongWait long_wait();
  // Empty, or what a kernel found wrong.
  std::string error() const;
  // Waits until everything launched so far is done.
  void synchronize() noexcept;

 private:
  std::shared_ptr<GpuPlan> prepare_one_round(const Program& program);
  // `early`: the kernel waits for its predecessor itself.
  void launch(const void* kernel, uint64_t ctas, uint64_t threads, void* arguments,
              bool early) const;
  void run_packets(GpuPlan& plan, const GpuCall& call);
  void connect_copies(std::span<const GpuPeer> peers, std::span<std::byte* const> boards);
  void run_one_round(GpuPlan& plan, const GpuCall& call);
  void slice_range(StepRange& range, bool uniform_only, uint64_t count, uint32_t element,
                   uint64_t ctas) const;
  // `place(message)`: where what is sent lies, for the peer.
  template <typename Place>
  void launch_send_recvs(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives,
                         Place place);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::cuda
