// Runs programs on a GPU: one kernel per operation on the caller's stream. No CUDA header is needed
// to use this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "include/nccl.h"
#include "src/exec/datatype.h"
#include "src/schedule/program.h"

namespace weft::cuda {

// True when this process has a GPU to use (and WEFT_HOST_MODE does not forbid it).
bool available();
int current_device();

// Device memory for ncclMemAlloc.
void* allocate(size_t size);
void release(void* pointer);

// What a rank tells the others at init.
struct GpuPeer {
  uint64_t process = 0;  // who shares the address space
  uint64_t memory = 0;   // where its block of memory is, in its own process
  char handle[64] = {};  // the same for other processes (CUDA IPC)
  char gpu[16] = {};     // UUID: which ranks share a GPU
  int32_t device = 0;    // in its own process's numbering
  int32_t max_ctas = 0;
};

struct GpuCall {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  Reduction reduction;
  bool packed = false;  // one-shot program with the low-latency protocol
  bool reduces = false;
  uint32_t signature = 0;
};

struct GpuMessage {
  void* pointer = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

// One rank's share. Calls come from one thread at a time, stop() and error() from any.
class GpuExecutor {
 public:
  // `max_ctas` 0: as many as fit. `staged`: there are ranks in other processes, so data goes
  // through a stage, memory of the library that all of them map. `process` tells processes apart.
  GpuExecutor(int rank, int nranks, int device, int max_ctas, bool staged, uint64_t process);
  ~GpuExecutor();
  GpuExecutor(const GpuExecutor&) = delete;
  GpuExecutor& operator=(const GpuExecutor&) = delete;

  GpuPeer describe() const;
  // Throws when a peer's device cannot be reached.
  void connect(std::span<const GpuPeer> peers);
  int device() const;

  // Largest message of the low-latency protocol.
  static size_t packed_limit();

  // A launch: begin(), any number of run()s on the first stream, end(). The other streams are
  // joined and wait.
  void begin(std::span<const cudaStream_t> streams);
  void run(const Program& program, const GpuCall& call);
  void run_pairs(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives);
  void end(std::span<const cudaStream_t> streams);

  // Makes every kernel that waits give up, now and later.
  void stop() noexcept;
  // Empty, or what a kernel found wrong.
  std::string error() const;
  // Waits until everything launched so far is done.
  void synchronize() noexcept;

 private:
  void launch(const Program& program, const GpuCall& call, const void* input, void* output,
              size_t count);
  void launch_pairs(std::span<const GpuMessage> sends, std::span<const GpuMessage> receives);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::cuda
