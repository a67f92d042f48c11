// The messages between two sides of a connection: over the control socket, which stays open as long
// as the connection, and over the queue pairs. Plain data. All hosts of a job have the same byte
// order.
#pragma once

#include <array>
#include <cstdint>

#include "plugins/net_verbs/rails.h"
#include "src/transport/net_abi/common.h"

namespace weft::net_verbs {

inline constexpr uint32_t kSlots = net_abi::kMaxRequests;  // messages in flight, by number % kSlots

enum class Word : uint32_t { kHello = 1, kMeet, kReady, kRefuse, kBye };

// The first word: identifies the speaker.
struct Hello {
  static constexpr uint32_t kMagic = 0x57564232;
  uint32_t magic = kMagic;
  uint32_t rails = 0, lanes_per_rail = 1;
  int32_t pid = 0;
  char host[64] = {};
  std::array<RailAddress, kMaxRails> rail{};
};

// Ends its texts, and limits its counts. False: it is no greeting of this plugin.
bool make_sane(Hello& hello);

struct LaneAddress {
  uint32_t number = 0, first_packet = 0;  // of the queue pair; number 0: none
};

// The messages that a receiver has completely: all before `before`, and before + i for every bit i.
struct Finished {
  uint64_t before = 0;
  uint32_t also = 0, unused = 0;
  bool has(uint64_t message) const {
    return message < before || (message - before < 32 && (also >> (message - before) & 1) != 0);
  }
};

// An epoch begins when both sides have said Meet with its number. A side that says Meet has stopped
// using the queue pairs of the previous epoch. Nothing from that epoch can arrive any more.
struct Meet {
  uint32_t epoch = 0;
  uint32_t rails_up = 0;        // of the speaker
  uint32_t pairs_to_avoid = 0;  // pairs that failed although their ports are up
  uint32_t unused = 0;
  Finished finished;  // set by a receiver
  std::array<LaneAddress, kMaxLanes> lanes{};
};

// The speaker's queue pairs of this epoch can receive.
struct Ready {
  uint32_t epoch = 0;
};

// The speaker gives up, with a reason.
struct Refuse {
  char text[400] = {};
};

// The speaker, a receiver, closes.
struct Bye {
  Finished finished;
};

// Over a queue pair, from the receiver: where message `message` may be written.
struct Invitation {
  uint64_t message = 0;
  uint64_t address = 0, room = 0;
  std::array<uint32_t, kMaxRails> keys{};  // by the receiver's rails, of those in use
};

// The immediate that comes with every piece of data.
struct Piece {
  static constexpr uint32_t kMostBytes = 1 << 20;
  uint32_t slot = 0;     // of the message
  uint32_t stripes = 1;  // in the message
  bool last = true;      // of its stripe
  uint32_t bytes = 0;

  uint32_t pack() const {
    return slot << 27 | (stripes - 1) << 22 | static_cast<uint32_t>(last) << 21 | bytes;
  }
  static Piece unpack(uint32_t word) {
    return {word >> 27, (word >> 22 & 31) + 1, (word >> 21 & 1) != 0, word & 0x1fffff};
  }
};
static_assert(kSlots == 32 && kMaxLanes == 32 && Piece::kMostBytes < 1 << 21);

}  // namespace weft::net_verbs
