// What ranks that share device memory keep there: a mailbox per rank that its peers write into, and
// the tables kernels need. Plain structs, the same for host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/exec/datatype.h"
#include "src/schedule/program.h"

namespace weft::cuda {

inline constexpr int kMaxRanks = 32;
inline constexpr int kMaxCtas = 64;
inline constexpr uint32_t kThreads = 512;
// Low-latency messages carry 8 bytes of data and two flags in 16 bytes. Two buffers per sender,
// used in turn: when a rank writes the third message, everyone has read the first.
inline constexpr uint64_t kPackedBytes = 64u << 10;  // largest message, data only
inline constexpr uint64_t kPackedBufferBytes = 2 * kPackedBytes;

// What a rank tells a peer when it enters an operation: 16-byte stores that carry their own flag,
// so no fence is needed.
struct alignas(16) Packet {
  uint32_t data0, flag0, data1, flag1;
};
struct Announcement {
  Packet input, output, scalar, signature;
};

// One rank's memory that others write into (announcements, tokens, packed) and its own counters.
// Counters only grow, so CUDA graphs can be replayed without telling anyone. Index [cta][peer].
struct Mailbox {
  Announcement announcements[kMaxCtas][kMaxRanks];
  Announcement messages[kMaxCtas][kMaxRanks];  // of send/recv
  uint32_t tokens[kMaxCtas][kMaxRanks];
  uint32_t acknowledgements[kMaxCtas][kMaxRanks];
  // Private to the rank's own thread block: how often it has done each of these.
  uint32_t met[kMaxCtas];
  uint32_t left[kMaxCtas];
  uint32_t sent[kMaxCtas][kMaxRanks], received[kMaxCtas][kMaxRanks];
  uint32_t packed[kMaxCtas];
  alignas(16) std::byte packets[kMaxRanks][2][kPackedBufferBytes];
};

// In pinned host memory, so that the host can stop kernels and hear of errors while they run.
struct HostFlags {
  uint32_t stop = 0;
  uint32_t error = 0;  // 1: the peer announced another call; 2: waited too long
  int32_t peer = -1;
  uint32_t expected = 0, seen = 0;
};

// One rank's view, constant after init. Travels in the kernel's parameters: reading it costs no
// trip to memory.
struct DeviceComm {
  int32_t rank = 0, nranks = 0;
  bool one_device = true;  // all peers' memory is this GPU's own: fences can be narrower
  HostFlags* flags = nullptr;
  Mailbox* mailboxes[kMaxRanks] = {};
  // Addresses travel as offsets from these: 0 within a process, else where each rank's stage is
  // mapped here.
  uint64_t bases[kMaxRanks] = {};
};

// A lowered program fits into the kernel's parameters: no upload, nothing to allocate, graphs keep
// a copy.
inline constexpr int kMaxSteps = 36;
inline constexpr int kMaxOperands = 224;

struct alignas(16) KernelArguments {
  Mailbox* mine = nullptr;  // first: its counters are asked for before the rest has arrived
  DeviceComm comm;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  uint64_t count = 0, chunk = 0;
  Reduction reduction;
  uint32_t element = 1;
  int32_t chunks = 1;
  uint32_t signature = 0;  // kind, count, type, op, root: peers must announce the same
  uint32_t step_count = 0;
  bool packed = false;  // messages use the low-latency protocol
  ProgramStep steps[kMaxSteps];
  ProgramOperand operands[kMaxOperands];
};
static_assert(sizeof(KernelArguments) <= 4096);

// Point-to-point: everything one rank sends and receives in one group, at most one message per peer
// and direction.
struct alignas(16) PairArguments {
  Mailbox* mine = nullptr;
  DeviceComm comm;
  uint32_t send_count = 0, receive_count = 0;
  struct Message {
    std::byte* pointer;
    uint64_t bytes;
    int32_t peer;
    uint32_t ctas;  // how many thread blocks share it; a function of `bytes`, so both sides agree
  };
  Message sends[kMaxRanks], receives[kMaxRanks];
};
static_assert(sizeof(PairArguments) <= 4096);

}  // namespace weft::cuda
