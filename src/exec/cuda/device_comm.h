// The data that ranks keep in shared device memory: a mailbox per rank that its peers write into,
// and the arguments of kernels. Plain structs, the same for host and device.
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
inline constexpr uint32_t kPacketThreads = 256;  // packet kernels need many registers
inline constexpr uint32_t kMaxSteps = 128;       // of a program in kernel parameters
// Kernels that overlap when the next one starts early. An SM must hold a thread block of each.
inline constexpr uint32_t kEarlyKernels = 2;

// The low-latency protocol: FIFOs of packets per thread block, peer and channel. A packet is 16
// bytes: 8 bytes of data and two flags. A message fits in one slot. The sender writes a slot again
// only after the peer has read it.
inline constexpr uint32_t kPacketSlots = 2;
// 1024 and a few: with a block less than a power of two, messages still take no more slots.
inline constexpr uint32_t kSlotPackets = 1152;
inline constexpr size_t kSlotBytes = kSlotPackets * 8;  // of data
inline constexpr int kPacketChannels = 3;               // two for programs, one for send/recv
inline constexpr int kSendRecvChannel = 2;
inline constexpr uint32_t kMaxPorts = kPacketChannels * kMaxRanks;

// A rank announces its buffers to each peer when it enters an operation. Each 16-byte store carries
// its own flag, so no fence is needed.
struct alignas(16) Packet {
  uint32_t data0, flag0, data1, flag1;
};
struct Announcement {
  Packet input, output, scalar, signature;
};

// One rank's memory that peers write into (announcements, tokens), and its own counters. Counters
// only grow, so CUDA graphs can be replayed without resetting them. Index [cta][peer]. The counters
// and slots of the low-latency protocol follow in memory, then the stage.
struct alignas(256) Mailbox {
  Announcement announcements[kMaxCtas][kMaxRanks];
  Announcement messages[kMaxCtas][kMaxRanks];  // of send/recv: message_slots() for each peer
  uint32_t tokens[kMaxCtas][kMaxRanks];
  uint32_t acknowledgements[kMaxCtas][kMaxRanks];
  // Private to the rank's own thread block: how many times it has done each of these.
  uint32_t announced[kMaxCtas];
  uint32_t met[kMaxCtas];
  uint32_t sent[kMaxCtas][kMaxRanks], received[kMaxCtas][kMaxRanks];
  // Rank 0's copy serves all ranks of a GPU that work together. `drawn`: tiles of each chunk that
  // thread blocks have drawn. `finished`: thread blocks that will draw no more. Both are zero
  // between kernels: the last block of all ranks clears them. No rank draws in its next kernel
  // before all ranks have announced theirs.
  uint32_t drawn[kMaxSteps];
  uint32_t finished;
};

// Messages so far on a port of the low-latency protocol. The owner counts `sent` and `received`;
// the peer writes `consumed`.
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

// In pinned host memory, so that the host can stop running kernels and read their errors. Kernels
// read the first two fields with one load.
struct alignas(8) HostFlags {
  uint32_t stop = 0;
  uint32_t gone = 0;   // a bit per rank that has left and will send nothing more; see gone_word()
  uint64_t error = 0;  // an error_word(), or 0
  uint64_t wait = 0;   // a wait_word(), written now and then by a kernel that waits long
};
// The word with the bit of a rank. Words for more than 32 ranks follow in memory.
WEFT_HD inline uint32_t* gone_word(HostFlags* flags, int rank) {
  return rank < 32 ? &flags->gone : reinterpret_cast<uint32_t*>(flags + 1) + rank / 32 - 1;
}
inline size_t host_flags_bytes(int nranks) {
  return sizeof(HostFlags) + static_cast<size_t>(nranks / 32) * sizeof(uint32_t);
}
enum class KernelError : uint8_t { kNone, kOtherCall, kTimeout, kLeft };
// Kernels know the number of their call as far as it fits. A send or receive has none.
inline constexpr uint32_t kCallBits = 24, kNoCall = (1u << kCallBits) - 1;
// What went wrong, with which peer, in which call and step (-1: not known).
struct KernelFault {
  KernelError error = KernelError::kNone;
  int peer = -1;
  uint32_t call = kNoCall;
  int step = -1;
};
// The same in one word, which is read atomically: 8 bits, 20, 24 and 12.
WEFT_HD inline uint64_t error_word(const KernelFault& fault) {
  const uint64_t step = fault.step < 0xffe ? fault.step + 1 : 0;
  return step << 52 | uint64_t{fault.call & kNoCall} << 28 |
         static_cast<uint64_t>(fault.peer + 1) << 8 | static_cast<uint64_t>(fault.error);
}
inline KernelFault fault_of(uint64_t word) {
  return {static_cast<KernelError>(word & 0xff), static_cast<int>(word >> 8 & 0xfffff) - 1,
          static_cast<uint32_t>(word >> 28) & kNoCall, static_cast<int>(word >> 52) - 1};
}
// The peer that a kernel waits for and the time so far, in one word. Unit of time: 2^20 ns.
inline constexpr int kWaitUnit = 20;
inline constexpr uint64_t kLongWaitNs = 250'000'000;  // shorter waits are not reported
WEFT_HD inline uint64_t wait_word(int peer, uint64_t ns) {
  return ns >> kWaitUnit << 32 | static_cast<uint32_t>(peer + 1);
}
inline int waited_for(uint64_t word) { return static_cast<int>(word & 0xffffffff) - 1; }
inline double waited_s(uint64_t word) {
  return static_cast<double>(word >> 32) * 1e-9 * (1 << kWaitUnit);
}

// What a waiting thread looks at besides.
struct Watch {
  HostFlags* flags = nullptr;
  uint64_t timeout_ns = 0;  // 0: wait for ever
  uint32_t call = kNoCall;  // the number of this call
};

// One rank's view, constant after init but for the call's number. It is part of the kernel
// parameters, so a kernel reads it without a trip to device memory.
struct DeviceComm : Watch {
  int32_t rank = 0, nranks = 0;
  // All peers' memory is on this GPU, in whichever process: fences can be narrower.
  bool one_device = true;
  bool one_process = true;  // addresses are valid on all ranks
  uint32_t packet_ctas = 0, ports = 0;
  uint64_t stage = 0;  // bytes from the mailbox to the stage
  // Between processes: local addresses of the peers' shared memory, [rank][number].
  const uint64_t* registrations = nullptr;
  Mailbox* mailboxes[kMaxRanks] = {};

  WEFT_HD uint32_t port(int peer, int channel) const {
    return static_cast<uint32_t>(channel * nranks + peer);
  }
};

// The first slot of a port of the low-latency protocol in a rank's memory, for thread block 0.
inline std::byte* first_slot(const DeviceComm& comm, int owner, uint32_t port) {
  Packet* slots = packet_slots(comm.mailboxes[owner], comm.packet_ctas, comm.ports);
  return reinterpret_cast<std::byte*>(slots + size_t{port} * kPacketSlots * kSlotPackets);
}

// The value that a rank writes into a peer's memory at init.
WEFT_HD inline uint32_t probe_value(int from, int to) {
  return 0x57454654u ^ static_cast<uint32_t>(from * 65599 + to * 257 + 1);
}

// The place of a rank's buffer, for its peers. Within a process: the address. Between processes:
// 1 + the number of the shared memory that holds it, and the offset. kPrivate: peers cannot access
// it. A number is that of an allocation, or of a region (memory_driver.h).
inline constexpr int kMostAllocations = 2048, kMostRegions = 64;
inline constexpr int kPlaces = kMostAllocations + kMostRegions;  // of a rank
inline constexpr int kOffsetBits = 48;
inline constexpr uint64_t kPrivate = ~uint64_t{0};

// A lowered program fits into kernel parameters: no upload and no allocation, and a graph keeps its
// own copy.
inline constexpr uint32_t kMaxOperands = 512;
inline constexpr size_t kProgramBytes =
    kMaxSteps * sizeof(ProgramStep) + kMaxOperands * sizeof(ProgramOperand);

// How a program that accesses peers' memory runs.
enum class Protocol : uint8_t {
  kPeerMemory,  // read and write the peers' buffers in place
  kScratch,     // the same through scratch memory that all ranks can access, piece by piece
};

// A range of steps that is a program of its own.
struct StepRange {
  uint32_t first = 0, count = 0;
  int32_t chunks = 1;
  uint64_t chunk = 0;  // elements per chunk
  // kScratch: a thread block has a share of every chunk. It moves the share in slices of one part
  // each.
  uint64_t share = 0, part = 0, slices = 1;
  bool staggered = false;  // the first slice has a different length in different thread blocks
  bool together = false;   // kPeerMemory: the thread blocks of all ranks split every chunk
  uint32_t scratch_chunks = 0;
  Protocol protocol = Protocol::kPeerMemory;
};

// chunk_length(): elements of chunk `sub` of a block of `count` elements. chunk_begin(): the first
// element of chunk `index` in a buffer whose blocks begin `stride` elements apart.
WEFT_HD inline uint64_t chunk_length(const StepRange& range, uint64_t count, int32_t sub) {
  const uint64_t from = static_cast<uint64_t>(sub % range.chunks) * range.chunk;
  if (from >= count) return 0;
  return count - from < range.chunk ? count - from : range.chunk;
}
WEFT_HD inline uint64_t chunk_begin(const StepRange& range, uint64_t stride, int32_t index) {
  const auto number = static_cast<uint32_t>(index), chunks = static_cast<uint32_t>(range.chunks);
  return chunks == 1 ? number * stride : number / chunks * stride + number % chunks * range.chunk;
}

// A program that is one movement between two meetings of all ranks. It moves data from one place in
// some ranks' inputs to one place in some ranks' outputs. The host works out all it can: that saves
// 3 us in the kernel.
struct OneMovement {
  uint32_t sources = 0, destinations = 0;  // a bit per rank; none: the program is not one movement
  uint64_t source_at = 0, destination_at = 0;  // in bytes
  uint64_t elements = 0;
  uint64_t scaled = 0;  // see Movement
  uint32_t divide_by = 0;
};

// The first bytes of arguments that end in a program. A launch takes longer with a larger parameter
// type, used or not: 4 us for 4 KB and 9 us for 32 KB on an H200. So some kernels come in two
// versions: one for few bytes, and one for all.
inline constexpr size_t kFewBytes = 3072, kFewRingBytes = 4000;
template <size_t kBytes>
struct alignas(16) ParameterBytes {
  std::byte bytes[kBytes];
};

struct alignas(16) KernelArguments {
  // First: the kernel loads its counters before the other parameters have arrived.
  Mailbox* mine = nullptr;
  uint16_t bytes = 0;        // bytes of this struct in use
  uint16_t operands_at = 0;  // where the operands begin in `program_bytes`
  uint32_t signature = 0;    // kind, count, type, op, root: peers must announce the same
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  uint64_t count = 0, stride = 0;  // as in Operation
  // The places of the buffers, for the peers.
  uint64_t input_place = kPrivate, output_place = kPrivate;
  Reduction reduction;
  uint32_t element = 1;
  bool has_fallback = false;
  // The program, and the program to run instead if some rank's buffers are private.
  StepRange program, fallback;
  OneMovement one_movement;  // equals `program`, if that is one movement
  DeviceComm comm;
  alignas(16) std::byte program_bytes[kProgramBytes];  // steps, then operands, without a gap

  WEFT_HD const ProgramStep& step(uint32_t n) const {
    return reinterpret_cast<const ProgramStep*>(program_bytes)[n];
  }
  WEFT_HD const ProgramOperand& operand(uint32_t n) const {
    return reinterpret_cast<const ProgramOperand*>(program_bytes + operands_at)[n];
  }
};
static_assert(sizeof(KernelArguments) < 16384);

// A program with FIFOs for the low-latency protocol. The host works out all it can: a thread finds
// an operand with two loads from shared memory.
struct alignas(16) PacketOperand {
  enum Kind : uint8_t { kMemory, kScratch, kMessage };
  std::byte* base = nullptr;  // for block 0 and slice 0; of a message: the port's first slot
  uint16_t port = 0;
  // Messages on the port before this one in a slice, and in a whole slice.
  uint16_t before = 0, per_slice = 0;
  uint8_t kind = kMemory;
  bool receives = false;  // a message that this rank receives
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
  // First: the kernel loads its counters before the other parameters have arrived.
  Mailbox* mine = nullptr;
  uint32_t ports = 0;
  uint16_t bytes = 0;        // bytes of this struct in use
  uint16_t operands_at = 0;  // where the operands begin in `program_bytes`
  uint32_t signature = 0;
  uint16_t step_count = 0, operand_count = 0;
  // A chunk is moved in slices. Each thread block has a part of every slice.
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

// A program with an OneRoundShape, for the low-latency protocol. It is small, so kernels read it
// from constant memory.
struct OneRoundArguments {
  Mailbox* mine = nullptr;
  const std::byte* input = nullptr;  // the message to rank 0
  std::byte* output = nullptr;       // where the message from rank 0 goes, or the sum
  const std::byte* own_from = nullptr;
  std::byte* own_to = nullptr;  // if set, `own_from` is copied there
  uint64_t send_stride = 0, receive_stride = 0;
  uint64_t bytes = 0;  // bytes per message
  // A message is moved in slices. Each thread block has a part of every slice.
  uint64_t slice_bytes = 0;
  uint32_t part_bytes = 0, slices = 1;
  uint32_t send_to = 0, receive_from = 0;
  uint32_t columns = 0;  // threads that work on one peer's words; if the block has more, the others
                         // serve other peers meanwhile
  uint32_t ports = 0;
  uint32_t signature = 0;
  uint32_t slots_at = 0;  // bytes from a mailbox to its slots
  bool sums_own = false;
  bool early = false;  // the kernel may have started before its predecessor ended
  Reduction reduction;
  DeviceComm comm;
};

// Messages between two ranks that a kernel of send/recv takes in each direction. Announcements of
// all peers share the room of one per rank.
WEFT_HD inline uint32_t message_slots(int nranks) {
  return nranks < kMaxRanks ? static_cast<uint32_t>(kMaxRanks / nranks) : 1;
}

// Point-to-point: messages that one rank sends and receives in one group, at most message_slots()
// per peer and direction. Those between two ranks are in order.
struct alignas(16) SendRecvArguments {
  Mailbox* mine = nullptr;
  uint32_t ports = 0;
  uint32_t send_count = 0, receive_count = 0;
  // Messages in packets go in steps. In a step a port takes `packet_width` slots of data, each with
  // `packet_words` at most. The number of steps is an upper bound for all thread blocks.
  uint32_t packet_steps = 0, packet_words = 0;
  uint16_t packet_width = 1;
  uint8_t turns = 0;     // in which large messages are received; the most of one peer
  bool several = false;  // there are several messages between this rank and some peer
  struct Message {
    std::byte* pointer;
    uint64_t place;  // of the data to send, for the peer
    uint64_t bytes;
    std::byte* slots;  // the port's first slot, for a message in packets
    uint32_t part;     // bytes per thread block of a message in packets
    int16_t peer;
    // Thread blocks that share the message; a function of `bytes`, so both sides agree.
    uint8_t ctas;
    bool packets;  // the message goes in packets; also a function of `bytes`
  };
  Message sends[kMaxRanks], receives[kMaxRanks];
  DeviceComm comm;
};

// A program for the interpreter with FIFOs in host memory. A thread block runs a lane of a
// collective, or the messages of send/recv to or from one peer, one after the other.
inline constexpr uint32_t kMaxRingJobs = 64;
struct RingJob {
  const std::byte* input;
  std::byte* output;
  uint64_t count, stride, chunk, slice, iterations;  // as in Operation
  uint16_t first_send, first_receive;                // index of its first port
  uint16_t sends, receives;                          // number of ports
  uint16_t lane;
  uint16_t next;  // the next job of the block; 0: there is none
};
struct RingHead {
  uint32_t bytes = 0;  // bytes of this struct in use
  uint32_t lane_count = 0;
  int32_t chunks = 1;
  uint32_t element = 1;
  // Offsets in `program_bytes`. Ports are addresses of SendPorts and RecvPorts.
  uint16_t jobs_at = 0, lanes_at = 0, steps_at = 0, operands_at = 0, dependencies_at = 0,
           ports_at = 0;
  uint8_t collective = 0;
  int32_t root = 0;
  uint32_t plan = 0;
  Reduction reduction;
  std::byte* scratch = nullptr;
  uint64_t* progress = nullptr;  // per lane, all zero between kernels; nullptr: no lane needs it
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

// A program with an OneRoundShape through FIFOs in host memory. All messages have the same size.
struct RingExchangeArguments {
  MessageHeader header;              // of every message, both directions; kind 0: nothing to do
  const std::byte* input = nullptr;  // the message to rank 0
  std::byte* output = nullptr;       // where the message from rank 0 goes, or the sum
  const std::byte* own_from = nullptr;
  std::byte* own_to = nullptr;  // if set, `own_from` is copied there
  uint64_t send_stride = 0, receive_stride = 0;
  uint32_t send_to = 0, receive_from = 0;  // a bit per rank
  uint32_t divide_by = 0;                  // 0: not an average
  ncclRedOp_t op = ncclSum;
  bool sums_own = false;
  bool aligned = false;  // all these addresses are multiples of 16
  DeviceComm comm;
  struct {
    SendPort* send;
    RecvPort* receive;
  } ports[kMaxRanks] = {};
};
static_assert(sizeof(RingExchangeArguments) <= 4096);

}  // namespace weft::cuda
