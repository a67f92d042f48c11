// What ranks that share device memory keep there: a mailbox per rank that its peers write into, and
// the tables kernels need. Plain structs, the same for host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/host_device.h"
#include "src/exec/datatype.h"
#include "src/schedule/program_view.h"
#include "src/transport/fifo.h"

namespace weft::cuda {

inline constexpr int kMaxRanks = 32;
inline constexpr int kMaxCtas = 64;
inline constexpr uint32_t kThreads = 512;
inline constexpr uint32_t kPacketThreads = 256;  // they need many registers
inline constexpr uint32_t kMaxSteps = 128;       // of a program in a kernel's parameters
// Of kernels that let the next one start early: so many thread blocks must fit on a multiprocessor.
inline constexpr uint32_t kEarlyKernels = 2;

// The low-latency protocol: FIFOs of packets, 8 bytes of data and two flags in 16 bytes, per thread
// block, peer and channel. A message is at most a slot; while the peer has not read a slot it is
// not written again.
inline constexpr uint32_t kPacketSlots = 2;
inline constexpr uint32_t kSlotPackets = 1024;
inline constexpr size_t kSlotBytes = kSlotPackets * 8;  // of data
inline constexpr int kPacketChannels = 3;               // two for programs, one for send/recv
inline constexpr int kSendRecvChannel = 2;
inline constexpr uint32_t kMaxPorts = kPacketChannels * kMaxRanks;

// What a rank tells a peer when it enters an operation: 16-byte stores that carry their own flag,
// so no fence is needed.
struct alignas(16) Packet {
  uint32_t data0, flag0, data1, flag1;
};
struct Announcement {
  Packet input, output, scalar, signature;
};

// One rank's memory that others write into (announcements, tokens) and its own counters.
// Counters only grow, so CUDA graphs can be replayed without telling anyone. Index [cta][peer].
// Behind it lie the counters and slots of the low-latency protocol, then the stage.
struct alignas(256) Mailbox {
  Announcement announcements[kMaxCtas][kMaxRanks];
  Announcement messages[kMaxCtas][kMaxRanks];  // of send/recv
  uint32_t tokens[kMaxCtas][kMaxRanks];
  uint32_t acknowledgements[kMaxCtas][kMaxRanks];
  // Private to the rank's own thread block: how often it has done each of these.
  uint32_t announced[kMaxCtas];
  uint32_t met[kMaxCtas];
  uint32_t sent[kMaxCtas][kMaxRanks], received[kMaxCtas][kMaxRanks];
  // Rank 0's, for all ranks of a GPU that work together: tiles that blocks have drawn of each
  // chunk, and how many blocks will draw no more. These are zero between kernels: the last block of
  // all ranks sees to it, and no rank's next kernel draws before all have announced theirs.
  uint32_t drawn[kMaxSteps];
  uint32_t finished;
  uint32_t probe[kMaxRanks];  // what peers wrote at init, see GpuExecutor::probe()
};

// Messages so far on a port of the low-latency protocol: sent and received are the owner's,
// `consumed` is written by the peer.
struct alignas(16) PortCounters {
  uint32_t sent, received, consumed, unused;
};

WEFT_HD inline PortCounters* port_counters(Mailbox* mailbox) {
  return reinterpret_cast<PortCounters*>(mailbox + 1);
}
// Slots are numbered [cta][port][slot].
WEFT_HD inline Packet* packet_slots(Mailbox* mailbox, uint32_t ctas, uint32_t ports) {
  return reinterpret_cast<Packet*>(port_counters(mailbox) + ctas * ports);
}
inline size_t mailbox_bytes(uint32_t ctas, uint32_t ports) {
  return sizeof(Mailbox) +
         size_t{ctas} * ports *
             (sizeof(PortCounters) + kPacketSlots * kSlotPackets * sizeof(Packet));
}

// In pinned host memory, so that the host can stop kernels and hear of errors while they run.
// Kernels read the first two with one load.
struct alignas(8) HostFlags {
  uint32_t stop = 0;
  uint32_t gone = 0;   // a bit per rank that has left: what it has not sent will never come
  uint32_t error = 0;  // an error_word(), or 0
  uint32_t wait = 0;   // of who waits for long, now and then: a wait_word()
};
enum class KernelError : uint8_t { kNone, kOtherCall, kTimeout, kLeft };
// The error and whom it is about, in a word that is seen as a whole.
WEFT_HD inline uint32_t error_word(KernelError error, int peer) {
  return static_cast<uint32_t>(peer + 1) << 8 | static_cast<uint32_t>(error);
}
// For whom somebody waits and for how long, in the same way. Time is in units of 2^20 ns.
inline constexpr int kWaitUnit = 20;
inline constexpr uint64_t kLongWaitNs = 250'000'000;  // nobody tells of shorter ones
WEFT_HD inline uint32_t wait_word(int peer, uint64_t ns) {
  const uint64_t most = 0xffffff, units = ns >> kWaitUnit;
  return static_cast<uint32_t>(units < most ? units : most) << 8 | static_cast<uint32_t>(peer + 1);
}
inline int waited_for(uint32_t word) { return static_cast<int>(word & 0xff) - 1; }
inline double waited_s(uint32_t word) { return (word >> 8) * 1e-9 * (1 << kWaitUnit); }

// One rank's view, constant after init. Travels in the kernel's parameters: reading it costs no
// trip to memory.
struct DeviceComm {
  int32_t rank = 0, nranks = 0;
  // All peers' memory is this GPU's own, whichever process has it: fences can be narrower.
  bool one_device = true;
  bool one_process = true;  // addresses mean the same to all ranks
  uint32_t packet_ctas = 0, ports = 0;
  uint64_t timeout_ns = 0;  // 0: wait for ever
  HostFlags* flags = nullptr;
  uint64_t stage = 0;  // from the mailbox to the stage, in bytes
  // Between processes: where the peers' registered memory is mapped here, [rank][registration].
  const uint64_t* registrations = nullptr;
  Mailbox* mailboxes[kMaxRanks] = {};

  WEFT_HD uint32_t port(int peer, int channel) const {
    return static_cast<uint32_t>(channel * nranks + peer);
  }
};

// What a rank writes into a peer's Mailbox::probe at init.
WEFT_HD inline uint32_t probe_value(int from, int to) {
  return 0x57454654u ^ static_cast<uint32_t>(from * 65599 + to * 257 + 1);
}

// How a rank says where its buffer is. Within a process: the address. Between processes: which of
// its registrations it lies in, and where; kPrivate if the peers cannot reach it.
inline constexpr int kMaxRegistrations = 256;
inline constexpr int kOffsetBits = 48;
inline constexpr uint64_t kPrivate = ~uint64_t{0};

// A lowered program fits into the kernel's parameters: no upload, nothing to allocate, graphs keep
// a copy.
inline constexpr uint32_t kMaxOperands = 512;
inline constexpr size_t kProgramBytes =
    kMaxSteps * sizeof(ProgramStep) + kMaxOperands * sizeof(ProgramOperand);

// How a program that reaches into memory is run.
enum class Protocol : uint8_t {
  kPeerMemory,  // peers' buffers are read and written where they are
  kStage,       // the same with scratch memory that all can reach, piece by piece
};

// Part of the steps: a program of its own.
struct StepRange {
  uint32_t first = 0, count = 0;
  int32_t chunks = 1;
  uint64_t chunk = 0;  // elements per chunk
  // kStage: a thread block has a share of every chunk, which it works off in slices of a part each.
  uint64_t share = 0, part = 0, slices = 1;
  bool staggered = false;  // thread blocks begin with slices of different lengths
  bool together = false;   // kPeerMemory: the thread blocks of all ranks share out every chunk
  uint32_t scratch_chunks = 0;
  Protocol protocol = Protocol::kLoadStore;
};

// Elements of a block's chunk `sub`, of `count` in the block, and where chunk `index` begins in a
// buffer of blocks.
WEFT_HD inline uint64_t chunk_length(const StepRange& range, uint64_t count, int32_t sub) {
  const uint64_t from = static_cast<uint64_t>(sub % range.chunks) * range.chunk;
  if (from >= count) return 0;
  return count - from < range.chunk ? count - from : range.chunk;
}
WEFT_HD inline uint64_t chunk_begin(const StepRange& range, uint64_t count, int32_t index) {
  const auto number = static_cast<uint32_t>(index), chunks = static_cast<uint32_t>(range.chunks);
  return chunks == 1 ? number * count : number / chunks * count + number % chunks * range.chunk;
}

// A program that is one movement between two meetings of all ranks, worked out as far as the host
// can: from the same place in some ranks' inputs to the same place in some ranks' outputs. Kernels
// that need not find that out by themselves take 3 us less for it.
struct OneMovement {
  uint32_t sources = 0, destinations = 0;      // a bit per rank; none: it is no such program
  uint64_t source_at = 0, destination_at = 0;  // in bytes
  uint64_t elements = 0;
  uint64_t scaled = 0;  // see Movement
  uint32_t divide_by = 0;
};

// As kernels get arguments that end in a program: the first bytes. A launch takes longer the more
// of them a kernel can take, used or not (on an H200 4 us for 4 KB and 9 us for 32 KB), so where
// that pays there is a kernel for those that use few, and one for all others.
inline constexpr size_t kFewBytes = 3072, kFewRingBytes = 4000;
template <size_t kBytes>
struct alignas(16) ParameterBytes {
  std::byte bytes[kBytes];
};

struct alignas(16) KernelArguments {
  Mailbox* mine = nullptr;   // first: its counters are asked for before the rest has arrived
  uint16_t bytes = 0;        // of all this that are in use
  uint16_t operands_at = 0;  // where the operands begin in `program_bytes`
  uint32_t signature = 0;    // kind, count, type, op, root: peers must announce the same
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  uint64_t count = 0;
  // Where the buffers are, for the peers.
  uint64_t input_place = kPrivate, output_place = kPrivate;
  Reduction reduction;
  uint32_t element = 1;
  bool has_fallback = false;
  // What to run, and what to run instead if some rank's buffers cannot be reached by the others.
  StepRange program, fallback;
  OneMovement one_movement;  // the same as `program`, if it is one
  DeviceComm comm;
  alignas(16) std::byte program_bytes[kProgramBytes];  // steps, then operands, close together

  WEFT_HD const ProgramStep& step(uint32_t n) const {
    return reinterpret_cast<const ProgramStep*>(program_bytes)[n];
  }
  WEFT_HD const ProgramOperand& operand(uint32_t n) const {
    return reinterpret_cast<const ProgramOperand*>(program_bytes + operands_at)[n];
  }
};
static_assert(sizeof(KernelArguments) < 16384);

// A program with FIFOs for the low-latency protocol, with everything worked out that the host can
// work out: a thread finds an operand with two looks into shared memory.
struct alignas(16) PacketOperand {
  enum Kind : uint8_t { kMemory, kScratch, kMessage };
  std::byte* base = nullptr;  // for block 0 and slice 0; of a message, the port's first slot
  uint16_t port = 0;
  uint16_t before = 0, per_slice = 0;  // messages on the port before this one, and in a whole slice
  uint8_t kind = kMemory;
  bool receives = false;  // a message: comes in, not out
};
struct alignas(16) PacketStep {
  uint64_t bytes = 0;  // of the chunk
  uint64_t raw_sources = 0;
  uint16_t first_operand = 0, run = 1;
  uint8_t sources = 0, destinations = 0;
  bool completes = false;
  bool takes = false;  // a step of this run receives messages
};

struct alignas(16) PacketArguments {
  Mailbox* mine = nullptr;  // first: its counters are asked for before the rest has arrived
  uint32_t ports = 0;
  uint16_t bytes = 0;        // of all this that are in use
  uint16_t operands_at = 0;  // where the operands begin in `program_bytes`
  uint32_t signature = 0;
  uint16_t step_count = 0, operand_count = 0;
  // A chunk is worked off in slices, a thread block has a part of each.
  uint64_t slice_bytes = 0;
  uint32_t part_bytes = 0, slices = 1;
  Reduction reduction;
  DeviceComm comm;
  static constexpr size_t kProgramBytes =
      kMaxSteps * sizeof(PacketStep) + kMaxOperands * sizeof(PacketOperand);
  alignas(16) std::byte program_bytes[kProgramBytes];

  WEFT_HD const PacketStep& step(uint32_t n) const {
    return reinterpret_cast<const PacketStep*>(program_bytes)[n];
  }
  WEFT_HD const PacketOperand& operand(uint32_t n) const {
    return reinterpret_cast<const PacketOperand*>(program_bytes + operands_at)[n];
  }
};
static_assert(sizeof(PacketArguments) < 16384);

// A program in the form of an OneRoundShape, for the low-latency protocol. Small: read where it is,
// in constant memory.
struct OneRoundArguments {
  Mailbox* mine = nullptr;
  const std::byte* input = nullptr;  // what goes to rank 0
  std::byte* output = nullptr;       // where what comes from rank 0 goes, or the sum
  const std::byte* own_from = nullptr;
  std::byte* own_to = nullptr;  // set: a copy of `own_from` goes there
  uint64_t send_stride = 0, receive_stride = 0;
  uint64_t bytes = 0;  // of a message
  // A message is worked off in slices, a thread block has a part of each.
  uint64_t slice_bytes = 0;
  uint32_t part_bytes = 0, slices = 1;
  uint32_t send_to = 0, receive_from = 0;
  uint32_t columns = 0;  // log2 of the threads that work on words side by side; the rest of the
                         // block's threads see to other peers meanwhile
  uint32_t ports = 0;
  uint32_t signature = 0;
  uint32_t slots_at = 0;  // from a mailbox to its slots, in bytes
  bool sums_own = false;
  bool early = false;  // it may have started before the kernel ahead of it has ended
  Reduction reduction;
  DeviceComm comm;
};

// Point-to-point: everything one rank sends and receives in one group, at most one message per peer
// and direction.
struct alignas(16) SendRecvArguments {
  Mailbox* mine = nullptr;
  uint32_t ports = 0;
  uint32_t send_count = 0, receive_count = 0;
  // The most that a thread block has of one message in packets: slots full, and words of one.
  uint32_t packet_slices = 0, packet_words = 0;
  struct Message {
    std::byte* pointer;
    uint64_t place;  // of what is sent, for the peer
    uint64_t bytes;
    std::byte* slots;  // of a message in packets: the port's first
    uint32_t part;     // bytes per thread block of a message in packets
    int16_t peer;
    uint8_t ctas;  // how many thread blocks share it; a function of `bytes`, so both sides agree
    bool packets;  // likewise
  };
  Message sends[kMaxRanks], receives[kMaxRanks];
  DeviceComm comm;
};

// A program for the interpreter with rings, one thread block per job: a lane of a collective, or
// one message of send/recv.
inline constexpr uint32_t kMaxRingJobs = 64;
struct RingJob {
  const std::byte* input;
  std::byte* output;
  uint64_t count, chunk, slice, iterations;  // as in Operation
  uint16_t first_send, first_receive;        // of its ports
  uint16_t sends, receives;                  // how many
  uint16_t lane;
};
struct RingHead {
  uint32_t bytes = 0;  // of all this that are in use
  uint32_t lane_count = 0;
  int32_t chunks = 1;
  uint32_t element = 1;
  // Where these begin in `program_bytes`; ports are addresses of SendPorts and RecvPorts.
  uint16_t jobs_at = 0, lanes_at = 0, steps_at = 0, operands_at = 0, dependencies_at = 0,
           ports_at = 0;
  uint8_t collective = 0;
  int32_t root = 0;
  uint32_t plan = 0;
  Reduction reduction;
  std::byte* scratch = nullptr;
  uint64_t* progress = nullptr;  // per lane, all zero between kernels; nullptr: nobody needs it
  uint32_t* leaving = nullptr;   // thread blocks that have finished
  DeviceComm comm;
};
struct alignas(16) RingArguments : RingHead {
  static constexpr size_t kProgramBytes = 28 << 10;
  alignas(16) std::byte program_bytes[kProgramBytes];

  template <typename T>
  WEFT_HD const T* at(uint16_t place) const {
    return reinterpret_cast<const T*>(program_bytes + place);
  }
};
static_assert(sizeof(RingArguments) <= 32764);

// A program in the form of an OneRoundShape through rings, all messages of the same size.
struct RingExchangeArguments {
  MessageHeader header;              // of every message, both ways; kind 0: nothing to do
  const std::byte* input = nullptr;  // what goes to rank 0
  std::byte* output = nullptr;       // where what comes from rank 0 goes, or the sum
  const std::byte* own_from = nullptr;
  std::byte* own_to = nullptr;  // set: a copy of `own_from` goes there
  uint64_t send_stride = 0, receive_stride = 0;
  uint32_t send_to = 0, receive_from = 0;  // a bit per rank
  uint32_t divide_by = 0;                  // 0: not an average
  ncclRedOp_t op = ncclSum;
  bool sums_own = false;
  bool aligned = false;  // all of these addresses, to 16 bytes
  DeviceComm comm;
  struct {
    SendPort* send;
    RecvPort* receive;
  } ports[kMaxRanks] = {};
};
static_assert(sizeof(RingExchangeArguments) <= 4096);

}  // namespace weft::cuda
