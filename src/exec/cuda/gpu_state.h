// State shared by the executor's own files.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/exec/cuda/copy_engine.h"
#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/device_store.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/cuda/kernel_clock.h"
#include "src/exec/cuda/lane_geometry.h"
#include "src/exec/cuda/launch_order.h"
#include "src/exec/cuda/launch_slot.h"
#include "src/exec/cuda/memory_sizes.h"
#include "src/exec/cuda/rank_blocks.h"
#include "src/exec/cuda/registrations.h"
#include "src/exec/cuda/rings.h"
#include "src/exec/one_round_shape.h"

namespace weft::cuda {

// Device memory that ranks of this process access. The memory of a rank that left stays until the
// last rank leaves, because peers may still write to it.
class SharedMemory {
 public:
  ~SharedMemory();
  // One per communicator and process. Thread-safe.
  static std::shared_ptr<SharedMemory> of(uint64_t group);
  // On the current device. `others_write`: ranks of other processes write to it, perhaps late.
  std::byte* allocate(size_t bytes, bool others_write);
  // Pins host memory that ranks share, for all devices. One call is enough.
  void pin(std::byte* memory, size_t bytes);
  // Keeps the owner of pinned memory.
  void hold(std::shared_ptr<const void> owner);

 private:
  std::mutex mutex_;
  std::vector<PooledResource> blocks_;
  std::vector<std::byte*> pinned_;
  std::vector<std::shared_ptr<const void>> owners_;
};

struct GpuExecutor::State {
  DeviceStore::Visit visit;  // first: it ends after all resources are given back
  GpuOptions options;
  std::shared_ptr<SharedMemory> shared;
  // Thread blocks of a kernel that lets the next one start early. Two such kernels overlap, and
  // together they must fit in a rank's share of SMs. Where ranks share a GPU, a kernel that only
  // sends does not wait for a late rank. The late rank needs room for its earlier kernels.
  int early_ctas = 0;
  bool starts_early = false;     // the GPU can start a kernel before its predecessor ends
  std::atomic<int> priority{0};  // above 0: of the most urgent kernels; below: of the least
  int most_urgent = 0, least_urgent = 0;  // CUDA's numbers for them
  int max_ctas = 1;
  int launched_blocks = 0;      // for take_blocks()
  uint32_t threads = kThreads;  // per thread block, for large operations; small ones use fewer
  std::unique_ptr<RankBlocks> blocks;  // for use_blocks()
  std::shared_ptr<LaunchSlot> slot;    // where calls run; max_ctas is no more than its blocks
  // One allocation: mailbox, packet slots, stage, stage of sends, stage of the copy engines.
  std::byte* memory = nullptr;
  MemorySizes sizes;
  Mailbox* mailbox = nullptr;
  std::vector<void*> opened;  // peers' memory, mapped here
  // Per rank: its memory block as this GPU sees it, and its area in host memory if the two ranks
  // have no access to each other's GPU. One of them is nullptr.
  std::vector<std::byte*> blocks_of, areas_of;
  bool all_reach = false;  // every rank has access to every other, not only this one
  // Of ranks of other hosts: `lane_streams` per rank, and whether a rank is one.
  PooledResource postboxes;
  uint32_t lane_streams = 0;
  std::vector<bool> remote;
  int64_t gpu_shift = 0;         // as in LaneArguments
  size_t net_bytes = 0;          // of GPU memory that NICs reach
  size_t words_at = 0;           // from a block to its LaneWords
  PooledResource lane_counters;  // LaneCounters, then those of messages
  uint32_t* message_counters(bool sends, int peer) const {
    auto* first = reinterpret_cast<uint32_t*>(static_cast<LaneCounters*>(lane_counters.get()) + 1);
    return first + ((sends ? options.nranks : 0) + peer) * kMessageInstances;
  }
  size_t counter_bytes() const {
    return sizeof(LaneCounters) +
           size_t{2} * static_cast<size_t>(options.nranks) * kMessageInstances * sizeof(uint32_t);
  }
  PooledResource peer_words;  // for ProbeArguments
  // Programs of lanes, and what is uploaded.
  static constexpr size_t kPlanBytes = size_t{1} << 20;
  PooledResource plan_memory, plan_copy;
  PooledResource message_memory;  // for resolved messages of send/recv
  size_t plan_bytes_used = 0;
  size_t large_plan_bytes = 0;  // of plans that have memory of their own
  // As graphs() says. Graphs that are counted hold it too, and may outlive the communicator.
  std::shared_ptr<std::atomic<int>> graphs = std::make_shared<std::atomic<int>>(0);
  // The last capture whose graph is counted. Other communicators may share `order`.
  unsigned long long counted_capture = 0;
  std::pair<std::byte*, std::byte*> plan_room(LanePlan& plan, size_t bytes);
  void connect_posts(const GpuPosts& posts, std::byte* area);
  LaneRoom room;
  DeviceComm comm;
  PooledResource own_stream;  // for the communicator's own work, besides the caller's streams
  PooledResource kept_flags;
  HostFlags* flags = nullptr;
  std::shared_ptr<LaunchOrder> order;            // of the slot, once there is one
  std::unique_ptr<Registrations> registrations;  // only between processes
  // Numbers of the ranks that share memory; -1: it does not. And how many do.
  std::vector<int> sharer_of;
  int sharers = 0;
  bool nics_reach_buffers = false;
  // Where peers find a buffer of this rank. `peer`: who needs it; -1: all of its host. A rank finds
  // its own buffers by their address.
  uint64_t place_of(const void* pointer, size_t bytes, int peer = -1) const {
    if (peer == options.rank) return reinterpret_cast<uint64_t>(pointer);
    if (registrations != nullptr) {
      const int sharer = peer < 0 ? -1 : sharer_of[static_cast<size_t>(peer)];
      if (sharers == 1 || (peer >= 0 && sharer < 0)) return kPrivate;
      return registrations->place(pointer, bytes, sharer);
    }
    return comm.one_process ? reinterpret_cast<uint64_t>(pointer) : kPrivate;
  }
  // Whether NICs may read and write a buffer of this rank.
  bool nics_reach(const void* pointer, size_t bytes) const {
    return nics_reach_buffers && bytes > 0 &&
           registrations->place(pointer, bytes, OwnMemory::kNics) != kPrivate;
  }
  Apart apart() const {
    if (!options.net_lanes) return {};
    return [this](int rank) { return remote[static_cast<size_t>(rank)]; };
  }
  KernelClock clock;
  std::unique_ptr<CopyEngine> copies;  // only if requested
  bool crowded = false;                // some process has several ranks
  std::unique_ptr<Rings> rings;        // only if peers' memory cannot be accessed
  RingArguments ring_arguments;
};

// A OneMovement before the call: its step, the ranks and the chunk of their buffers.
struct OneMovementPlan {
  ProgramStep step;
  uint32_t sources = 0, destinations = 0;  // a bit per rank
  int32_t source_index = 0, destination_index = 0;
};

// A lane program in device memory.
class LanePlan {
 public:
  LaneImage image;
  PooledResource memory, copy;  // if it is large
  // In device memory.
  const std::byte* lanes = nullptr;
  const std::byte* whole_lanes = nullptr;  // of lay_end_to_end(); nullptr: it changes nothing
  const LanePort* producers = nullptr;
  uint32_t producer_count = 0;
  uint64_t* progress = nullptr;
  std::byte* resolved = nullptr;  // see LaneArguments
  uint32_t lane_bytes = 0, resolved_bytes = 0;
  std::vector<LaneSize> sizes;             // by lane
  const LaneSize* device_sizes = nullptr;  // the same
};

// Kernel parameters. All fields that do not change between calls are filled in.
class GpuPlan {
 public:
  enum class Kind : uint8_t { kProgram, kPackets, kOneRound };
  Kind kind = Kind::kProgram;
  Collective collective;
  // A program that accesses peers' memory, and perhaps a fallback program.
  KernelArguments arguments;
  bool program_is_uniform = false, fallback_is_uniform = false;  // see Program::uniform_only
  std::optional<OneMovementPlan> one_movement;  // the program, if it is one movement
  // A program with FIFOs. A call fills in its operands and steps from `source`.
  PacketArguments packet_arguments;
  Program source;
  // A program that needs no interpreter.
  OneRoundShape shape;
  OneRoundArguments one_round_arguments;
};

}  // namespace weft::cuda
