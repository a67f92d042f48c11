// What the executor's own files share.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/exec/cuda/copy_engine.h"
#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/device_store.h"
#include "src/exec/cuda/gpu_executor.h"
#include "src/exec/cuda/launch_order.h"
#include "src/exec/cuda/registrations.h"
#include "src/exec/cuda/rings.h"
#include "src/exec/one_round_shape.h"

namespace weft::cuda {

// Memory that ranks of this process reach into: a rank that has left keeps its own until the last
// one leaves, because peers may still have something to tell it.
class SharedMemory {
 public:
  ~SharedMemory();
  // The one of a communicator in this process; thread-safe.
  static std::shared_ptr<SharedMemory> of(uint64_t group);
  // On the current device. `others_write`: ranks of other processes do, and may be late.
  std::byte* allocate(size_t bytes, bool others_write);
  // Host memory that ranks have in common, for all devices. Once is enough.
  void pin(std::byte* memory, size_t bytes);
  // Keeps memory that is pinned.
  void hold(std::shared_ptr<const void> owner);

 private:
  std::mutex mutex_;
  std::vector<PooledResource> blocks_;
  std::vector<std::byte*> pinned_;
  std::vector<std::shared_ptr<const void>> owners_;
};

struct GpuExecutor::State {
  DeviceStore::Visit visit;  // first: it ends when all else is given back
  GpuOptions options;
  std::shared_ptr<SharedMemory> shared;
  int sms = 0;
  // Thread blocks of a kernel that lets the next one start at once. Both together have no more
  // multiprocessors than any other kernel has: where ranks share a GPU, what only sends does not
  // wait for a rank that is late, and that one needs room for what it has to do first.
  int early_ctas = 0;
  bool starts_early = false;  // the GPU can start a kernel before the one ahead has ended
  int max_ctas = 1;
  uint32_t threads = kThreads;  // of a thread block of large operations; fewer for small ones
  bool counted = false;         // among those of this process
  // One allocation: mailbox, packet slots, stage, stage of sends, stage of the copy engines.
  std::byte* memory = nullptr;
  size_t stage_bytes = 0, send_stage_bytes = 0, copy_stage_bytes = 0;
  Mailbox* mailbox = nullptr;
  std::vector<void*> opened;  // peers' memory, mapped here
  DeviceComm comm;
  PooledResource
      own_stream;  // for what the communicator does by itself, besides the caller's streams
  PooledResource kept_flags;
  HostFlags* flags = nullptr;
  std::unique_ptr<LaunchOrder> order;
  std::unique_ptr<Registrations> registrations;  // between processes
  std::unique_ptr<CopyEngine> copies;            // where they are asked for
  bool crowded = false;                          // some process has several ranks
  std::unique_ptr<Rings> rings;                  // where memory cannot be reached
  RingArguments ring_arguments;
};

// A OneMovement before the call: its step, and which chunks of whose buffers.
struct OneMovementPlan {
  ProgramStep step;
  uint32_t sources = 0, destinations = 0;  // a bit per rank
  int32_t source_index = 0, destination_index = 0;
};

// The kernel's parameters with all that does not change from call to call filled in.
class GpuPlan {
 public:
  enum class Kind : uint8_t { kProgram, kPackets, kOneRound };
  Kind kind = Kind::kProgram;
  Collective collective;
  // A program that reaches into memory, and perhaps another one in case it cannot.
  KernelArguments arguments;
  bool program_is_uniform = false, fallback_is_uniform = false;  // see Program::uniform_only
  std::optional<OneMovementPlan> one_movement;                   // the program, if it is so simple
  // A program with FIFOs; what its operands and steps stand for, to be filled in at a call.
  PacketArguments packet_arguments;
  Program source;
  // A program that needs no interpreter.
  OneRoundShape shape;
  OneRoundArguments one_round_arguments;
};

}  // namespace weft::cuda
