// What the lane kernel runs: any verified schedule whose ranks talk through messages. A rank's
// lanes, and instances of them, are work items. An instance has its share of every slice and FIFOs
// of its own. The rank's thread blocks advance the items that can go on, so any number of blocks
// runs any program. Plain structs, the same for host and device.
//
// A message goes from a producer to a consumer. Its data goes through a slot of a FIFO in the
// consumer's memory, or straight to where the consumer wants it. Everyone polls its own memory:
// `tail` lies with the consumer, `Credit` with the producer. Words carry the number of the call, so
// they are never reset, and each call may lay out its FIFOs anew: a producer writes nothing before
// the consumer has entered the call and granted it. A consumer may be calls ahead of a producer
// that still waits for others. So grants have a place per pair of ranks, whatever the call. A
// consumer does not store the heads that its producer need not wait for. So no store of one call
// arrives during the next.
//
// Small calls are eager between hosts, where a grant takes as long as the data: a producer sends
// when the consumer has entered the call before. Such messages have words and slots of their own,
// one half for even calls and one for odd ones, so they disturb nothing of the call before. Both
// halves of the words say which call it is, and the producer sees the grant before it ends. If the
// messages of an eager call are small, they are packets, as between GPUs that reach each other: a
// producer writes them to its own outbox and posts where they belong, without a fence, and the
// proxies carry the data from packets to packets.
//
// Small messages of send/recv are packets between all ranks, or between none, because each end sees
// the size of the message but not the group that the other one puts it into. They have halves by
// the number of the message between the two ranks. A producer writes one when its consumer has
// entered the one before, and does not wait for more.
//
// Between hosts data goes through slots at both ends, unless NICs reach the caller's buffers. Then
// a producer may leave it where it is (it lends it), and a consumer may get it in its output. A
// kernel that has lent data ends when that has been sent.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/exec/cuda/device_comm.h"
#include "src/schedule/program_view.h"
#include "src/transport/lane_post.h"

namespace weft::cuda {

// A grant is a packet. Data: where straight messages go, as kPrivate says; flags: the call.
// Written by the consumer, in the producer's memory.
struct alignas(32) Credit {
  Packet grant;       // of a message of send/recv
  uint64_t head = 0;  // call_word(): messages consumed
  uint64_t unused = 0;
};
// Written by the producer, in the consumer's memory.
struct alignas(32) Tail {
  uint64_t tail = 0;  // call_word(): messages produced
  uint64_t unused[3] = {};
};

// Calls grow, and so do messages in a call: words can be compared.
WEFT_HD inline uint64_t call_word(uint32_t call, uint64_t messages) {
  return static_cast<uint64_t>(call) << 32 | messages;
}

// Ports of one rank and direction, counted with their instances.
inline constexpr uint32_t kMostLanePorts = 8192;

// The most parts of a message of send/recv that are under way at once.
inline constexpr int kMessageInstances = 8;

// The most ports that eager calls have, counted with their instances, and messages of a port.
inline constexpr uint32_t kMostEagerPorts = 1024, kMostEagerMessages = 1 << 12;
// The tail of eager messages: `messages` are there, of a call with this signature.
WEFT_HD inline uint64_t eager_word(uint32_t call, uint32_t signature, uint64_t messages) {
  return call_word(call, uint64_t{signature & 0xffff} << 16 | messages);
}
WEFT_HD inline bool has_eager(uint64_t tail, uint64_t wanted) {
  return tail >> 16 == wanted >> 16 && tail >= wanted;
}

// Slots of packets. They hold nothing else, so what an earlier call has left there shows its
// number. Eager calls take turns with two halves.
inline constexpr uint32_t kLanePackets = 128 << 10;
inline constexpr uint32_t kEagerPackets = kLanePackets / 2;

// Packets of messages of send/recv: in all, unless there are too many ranks, and of a message. (The
// limit is that of schedules' packets. Neither has been measured for messages, on any machine.)
inline constexpr uint32_t kAllMessagePackets = 32 << 10;
inline constexpr uint32_t kLeastMessagePackets = 8, kMostMessagePackets = kLaneInlineBytes / 8;
WEFT_HD inline uint32_t message_packets(uint32_t nranks) {
  const uint32_t share = kAllMessagePackets / (2 * nranks);
  return share < kLeastMessagePackets  ? kLeastMessagePackets
         : share > kMostMessagePackets ? kMostMessagePackets
                                       : share;
}
// Of both halves of all ranks.
inline size_t message_packets_bytes(int nranks) {
  const auto n = static_cast<uint32_t>(nranks);
  return size_t{2} * n * message_packets(n) * sizeof(Packet);
}

// A rank's memory for lanes, at the same place in its block of device memory on all ranks, and once
// more in host memory if some peers have no access to that.
struct LaneWords {
  Tail tails[kMostLanePorts];
  Credit credits[kMostLanePorts];
  Packet packets[kLanePackets];
  Tail eager_tails[2][kMostEagerPorts];  // of even calls, and of odd ones
  // Then the words of send/recv, by peer and instance, and one per rank that peers write at init,
  // see GpuExecutor::write_probes().
  WEFT_HD Tail* message_tails() { return reinterpret_cast<Tail*>(this + 1); }
  WEFT_HD Credit* message_credits(int nranks) {
    return reinterpret_cast<Credit*>(message_tails() + nranks * kMessageInstances);
  }
  // By the rank that writes it: of even calls, then of odd ones.
  WEFT_HD Packet* grants(int nranks) {
    return reinterpret_cast<Packet*>(message_credits(nranks) + nranks * kMessageInstances);
  }
  // By half, then by producer.
  WEFT_HD Packet* small_messages(int nranks) { return grants(nranks) + 2 * nranks; }
  WEFT_HD uint32_t* probes(int nranks) {
    const auto n = static_cast<uint32_t>(nranks);
    return reinterpret_cast<uint32_t*>(small_messages(nranks) + size_t{2} * n * message_packets(n));
  }
};
inline size_t lane_words_bytes(int nranks) {
  return sizeof(LaneWords) + message_packets_bytes(nranks) +
         static_cast<size_t>(nranks) * (kMessageInstances * (sizeof(Tail) + sizeof(Credit)) +
                                        2 * sizeof(Packet) + sizeof(uint32_t));
}
// In host memory the pool follows the words, and then, if ranks are on several hosts, the outbox,
// and an outbox for small messages of send/recv, by half and consumer.
// Before the pool is a word that proxies write: posts with data that the network is done with.
inline size_t lane_area_pool(int nranks) {
  return (lane_words_bytes(nranks) + sizeof(uint64_t) + 4095) / 4096 * 4096;
}
// Codecs of a schedule that kernels run. All of them have the same block.
inline constexpr uint32_t kMostLaneCodecs = 4;

// Of shared memory, per item of a block; the second only if there is room.
inline constexpr size_t kLaneItemBytes = 64, kLaneWaitBytes = 16;
struct ProbeArguments {
  LaneWords* const* words = nullptr;  // of each rank; nullptr: no access
  int32_t rank = 0, nranks = 0;
};

struct LaneOperand {
  enum Kind : uint8_t { kInput, kOutput, kScratch, kMessage };
  Kind kind = kInput;
  bool raw : 1 = false;  // the caller's unmodified input; a pre-multiplier applies
  // A message that may go straight to kOutput on another host, too.
  bool far : 1 = false;
  // A message to another host that may be lent: it is the step's only source, unchanged, and that
  // stays as it is for the rest of the call. Such destinations are the last ones of a step.
  bool lends : 1 = false;
  // A message that may go straight to this place of its consumer: kOutput or kScratch.
  // kMessage: it may not.
  Kind straight = kMessage;
  uint8_t receives : 1 = 0;  // kMessage: it is a source
  uint8_t codec : 7 = 0;     // as in ProgramOperand
  // The first chunk, in the buffer or in the one that `straight` says: in block `block`, number
  // `index`. Of scratch memory: number `index`.
  int32_t block = 0, index = 0;
  uint16_t port = 0;   // kMessage: number of the port in its direction
  uint16_t place = 0;  // in its step: operands before it
  uint32_t order = 0;  // kMessage: messages on this port before it, in an iteration
};

struct alignas(16) LaneStep {
  uint32_t first_operand = 0, first_dependency = 0;  // of the lane's
  uint16_t sources = 0, destinations = 0, dependencies = 0;
  bool completes = false;
  bool counted = false;        // other lanes wait for it
  int32_t count = 0, sub = 0;  // as in ProgramStep
  bool sends = false;          // some destination is a message
  // The first destination is where the only source may have gone straight. Then nothing is to be
  // done for it.
  bool skips = false;
  bool simple = false;  // at most one chunk, or `whole`, and an operand for every leader at most
  bool coded = false;   // an operand has a codec
  // Its chunks lie one after the other everywhere, see lay_end_to_end(): they are moved as one.
  bool whole = false;
};

struct LaneDependency {
  uint32_t lane = 0, step = 0;
  uint32_t steps = 0;  // of that lane
};

// A way to a rank of another host, in this rank's device memory. What belongs to the peer has
// addresses from kRemote on: offsets in its area. The proxy writes there what is posted.
struct Postbox {
  LanePostRing* ring = nullptr;
  uint32_t ticket = 0;        // of the next post
  uint32_t seen = 0;          // posts that the proxy has taken, at least
  std::byte* area = nullptr;  // this rank's
};
inline constexpr uint64_t kRemote = 1 << 20;

// One end of a FIFO. The consumer's and the producer's memory, and which of the words and FIFOs
// there belong to it: number `position` times instances, plus the instance.
struct LanePort {
  std::byte* pool = nullptr;                // the consumer's: FIFOs, then scratch memory
  Tail* tails = nullptr;                    // the consumer's
  Credit* credits = nullptr;                // the producer's
  Packet* packets = nullptr;                // the consumer's
  const uint64_t* registrations = nullptr;  // the consumer's, by number; nullptr: plain addresses
  uint32_t position = 0, credit_position = 0;
  uint32_t per_iteration = 0;  // messages
  int32_t peer = 0;
  bool reachable = false;  // the producer can write to the consumer's buffers and scratch memory
  bool straight = false;   // all its messages may go straight: LaneOperand::straight
  // Of the consumer, in the producer's memory, for even calls; not of send/recv.
  Packet* grant = nullptr;
  // The peer is on another host; nullptr: it is not. Then a producer's data lies in `outbox` until
  // the proxy has sent it, by `credit_position`, and `pool` and `tails` are remote. So are a
  // consumer's `credits`.
  Postbox* post = nullptr;
  std::byte* outbox = nullptr;
  // Packets, and all grants where calls may be eager: what one proxy sends to a rank at once takes
  // one message of the network.
  Postbox* small_post = nullptr;
  bool mutual = false;  // of a producer: this rank sends to it, too
};

// What a lane moves. In elements: from a block of the buffers to the next; the part of each that
// this run moves, cut into chunks, and these into slices, one per iteration and instance.
struct LaneData {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  uint64_t output_place = kPrivate;
  bool nic_input = false, nic_output = false;  // NICs reach them
  // Each slot has the room of so many. Then there are as many fewer instances.
  uint8_t wide = 1;
  uint64_t stride = 0, begin = 0, count = 0, chunk = 0, slice = 0;
  uint32_t iterations = 0, instances = 1;
};

// How far a block has come with a message of an item: the words to look at and to write, and their
// values. Data lies at LaneItem::at. The block resolves all operands when the kernel begins.
struct alignas(16) LaneEnd {
  enum Kind : uint8_t { kMemory, kSlot, kPacket, kStraight, kLent };
  uint64_t* word = nullptr;   // the tail or the head to wait for
  uint64_t* told = nullptr;   // the head or the tail to write then
  uint64_t next = 0;          // call_word() of the message
  uint64_t place = kPrivate;  // of a message to another host: where the consumer wants it
  uint32_t advance = 0;       // bytes from iteration to iteration; not of slots
  uint16_t slot = 0, slot_step = 0;
  uint32_t per_iteration = 0;
  int16_t peer = -1;
  Kind kind = kMemory;
  bool aligned : 1 = false;
  bool posted : 1 = false;  // `told` is remote
  bool free : 1 = false;    // all messages of its port go straight, so none waits for room
};
static_assert(sizeof(LaneEnd) == 48);

// Elements that a step moves: `slice` in so many iterations, then a rest, then nothing. And which
// of its sources are multiplied.
struct alignas(16) LaneLength {
  uint64_t rest = 0, scaled = 0;
  uint32_t full = 0;
};

// A lane in memory: this head, then steps, operands, dependencies, receiving and sending ports.
// Blocks copy the lanes that they run into shared memory.
struct alignas(16) LaneHead {
  uint32_t steps = 0, operands = 0, receives = 0, sends = 0;
  // Offsets.
  uint32_t operands_at = 0, dependencies_at = 0, receives_at = 0, sends_at = 0;
  bool own = false;      // it has its own data and counter: a message of send/recv
  bool packets = false;  // such a message in packets
  bool plain = false;    // its steps are simple, none is whole, and the rank has no other lane
  // If all its messages go straight, there is nothing to do but to wait for the last ones.
  bool only_arrives = false;
  uint32_t* counter = nullptr;  // calls of it that have completed, per instance
  LaneData data;

  // Bytes of its LaneEnds, LaneLengths and addresses.
  WEFT_HD uint32_t resolved_bytes() const {
    return static_cast<uint32_t>(operands * (sizeof(LaneEnd) + sizeof(std::byte*)) +
                                 steps * sizeof(LaneLength) + 15) /
           16 * 16;
  }
  template <typename T>
  WEFT_HD const T* at(uint32_t offset) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(this) + offset);
  }
};

// Bytes of a lane, and of what belongs to it when it is resolved: multiples of 16.
struct LaneSize {
  uint32_t lane = 0, resolved = 0;
};

// A rank's own counters.
struct LaneCounters {
  uint32_t call = 0;     // calls that have completed
  uint32_t leaving = 0;  // thread blocks that have finished
  // Posts with data, and how many there were when the last call ended. Calls lay out the outbox
  // anew. So nothing is written there before the network is done with these.
  uint32_t posted = 0, settled = 0;
};

struct LaneItem;

struct alignas(16) LaneArguments {
  Watch watch;
  LaneCounters* counters = nullptr;  // nullptr: only launched to be loaded
  uint64_t* progress = nullptr;      // call_word() of steps, by lane and instance
  // In device memory, for all calls of a plan. All lanes have the size of the largest, so a block
  // finds its own without a look at others.
  const std::byte* lanes = nullptr;
  uint32_t lane_bytes = 0;
  // If the lanes fit into shared memory only without gaps: their sizes. Otherwise nullptr, because
  // blocks would wait for them before they copy.
  const LaneSize* sizes = nullptr;
  std::byte* resolved = nullptr;  // for all items, if these do not fit into shared memory
  uint32_t resolved_bytes = 0;    // of the largest lane
  uint32_t lane_count = 0;
  // In device memory: a port of every rank that sends to this one. The first block grants them.
  const LanePort* producers = nullptr;
  uint32_t producer_count = 0;
  int32_t chunks = 1;
  LaneData data;
  std::byte* pool = nullptr;       // this rank's
  const uint64_t* sent = nullptr;  // see lane_area_pool(); nullptr: all ranks are on this host
  // From this rank's area to its GPU memory that NICs reach. 0: they reach none.
  int64_t gpu_shift = 0;
  // Messages of slices that are larger than this may be there. Also on all other ranks.
  uint32_t inline_bytes = kLaneInlineBytes;
  uint64_t scratch_at = 0;  // in every rank's pool
  // Messages to other hosts are eager. Their two halves of every rank's pool in host memory.
  // (Packets have halves of their own.) Of send/recv: some messages are packets.
  bool eager = false;
  uint64_t eager_at = 0, eager_bytes = 0;
  uint32_t ranks = 0;  // in the communicator
  // Between outboxes: from that for slots to that for small messages of send/recv.
  uint64_t small_outbox_at = 0;
  // The block's. The kernel sets them, for threads that wait.
  const LaneItem* block_items = nullptr;
  uint32_t block_item_count = 0;
  uint32_t word_instances = 1;
  uint32_t slots = 0, slot_bytes = 0;
  uint32_t element = 1;
  uint32_t signature = 0;
  uint32_t items = 0;        // lanes and their instances
  uint32_t in_a_row = 1;     // so many items in a row are instances of one lane
  bool system = false;       // some peer is on another GPU: memory order at system scope
  bool in_shared = false;    // a block's lanes fit into its shared memory
  bool has_waits = false;    // so does what its items wait for
  bool counts = true;        // the run is a call of all ranks
  bool packets = false;      // all messages are packets, each in a slot of its own
  bool warps = false;        // so small that in blocks with several items a warp moves a step's
  bool lends = false;        // some data may be lent to NICs
  uint32_t codec_block = 0;  // elements; 0: there are no codecs
  CodecSpec codecs[kMostLaneCodecs];
  // As in Operation, and the elements from block to block.
  float *input_losses = nullptr, *output_losses = nullptr;
  uint64_t losses_stride = 0;
  Reduction reduction;
};

// Blocks draw items there and back, so that who has a heavy one first has a light one next: what
// `block` has in its round, and how many it has in all.
WEFT_HD inline uint32_t dealt_item(uint32_t round, uint32_t block, uint32_t blocks) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}
WEFT_HD inline uint32_t dealt_items(uint32_t items, uint32_t block, uint32_t blocks) {
  const uint32_t rounds = items / blocks;
  return rounds + (dealt_item(rounds, block, blocks) < items ? 1 : 0);
}

// The lanes of messages of send/recv are kernel parameters. They follow the arguments.
struct alignas(16) MessageArguments : LaneArguments {
  uint32_t bytes = 0;  // of it all
};
inline constexpr size_t kFewMessageBytes = 4000, kMostMessageBytes = 28 << 10;

}  // namespace weft::cuda
