// The queue pairs of one epoch of a connection, with their completion queues and the memory for
// invitations. Every epoch creates new ones, so nothing from an earlier epoch can appear. One
// thread at a time.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugins/net_verbs/hca.h"
#include "plugins/net_verbs/wire.h"

namespace weft::net_verbs {

// Settings of queue pairs, from NCCL_IB_*.
struct LaneSettings {
  uint32_t lanes_per_rail = 1;
  bool split = false;
  int timeout = 20, retries = 7, service_level = 0, traffic_class = 0, partition = 0;
  int adaptive_routing = -2;      // NCCL_IB_ADAPTIVE_ROUTING
  uint64_t adaptive_from = 8192;  // bytes
};

// What a queue pair needs to receive from its peer.
ibv_qp_attr ready_to_receive(const LaneSettings& settings, const RailAddress& own,
                             const Gid& own_gid, const RailAddress& other, const Gid& other_gid,
                             const LaneAddress& peer);

// Whether a piece is announced by a write of its own. With adaptive routing the packets of a write
// may overtake each other, and one with an immediate may not. Such a write would be sent in order.
bool announces_apart(const LaneSettings& settings, const RailAddress& own, uint64_t bytes);

// The work requests that bring a piece: a write with an immediate, or a write and an empty one with
// an immediate.
struct PieceRequests {
  PieceRequests(const Piece& piece, uint64_t from, uint32_t from_key, uint64_t to, uint32_t to_key,
                bool apart);
  PieceRequests(const PieceRequests&) = delete;
  PieceRequests& operator=(const PieceRequests&) = delete;

  ibv_sge data;
  ibv_send_wr list[2]{};
  uint32_t count;
};

// A failed work request: its status and its lane.
struct Trouble {
  ibv_wc_status status = IBV_WC_SUCCESS;
  uint32_t vendor = 0;
  uint32_t lane = 0;
};

// Receives completions.
class LaneUser {
 public:
  virtual ~LaneUser() = default;
  virtual void sent(uint32_t slot) = 0;                    // a piece of the message in this slot
  virtual void arrived(const Piece& piece) = 0;            // at a receiver
  virtual void invited(const Invitation& invitation) = 0;  // at a sender
};

class QueuePairs {
 public:
  // A queue pair for every lane of the pairs that are wanted. Throws Error.
  QueuePairs(std::span<const Port> rails, std::span<const RailPair> pairs, uint32_t wanted,
             bool connecting, const LaneSettings& settings);
  ~QueuePairs();
  QueuePairs(const QueuePairs&) = delete;
  QueuePairs& operator=(const QueuePairs&) = delete;

  LaneAddress address(uint32_t lane) const;
  // Makes a lane ready to send and receive. Throws Error.
  void connect(uint32_t lane, std::span<const RailAddress> peer_rails, const LaneAddress& peer);

  // True: the request is posted. False: too many are in flight.
  bool post(uint32_t lane, const Piece& piece, uint64_t from, uint32_t from_key, uint64_t to,
            uint32_t to_key, bool may_inline);
  bool post(uint32_t lane, const Invitation& invitation);

  // Delivers completions. True if there were any.
  bool poll(LaneUser& user);
  // The first failure, not counting failures that it caused.
  const std::optional<Trouble>& trouble() const { return trouble_; }
  // Stops all traffic and delivers the earlier completions.
  void quiesce(LaneUser& user);

  // After arm(), a poll() on descriptors() returns when a request completes.
  void arm();
  void disarm();
  std::vector<int> descriptors() const;

  uint32_t own_rail(uint32_t lane) const;
  uint32_t peer_rail(uint32_t lane) const;

 private:
  struct Rail;
  struct Lane;
  void post_receive(Lane& lane, uint32_t index);
  bool start(Lane& lane, ibv_send_wr& first);
  void complete(LaneUser& user, const ibv_wc& wc);

  const std::span<const Port> ports_;
  const std::span<const RailPair> pairs_;
  const bool connecting_;
  const LaneSettings settings_;
  std::vector<Rail> rails_;
  std::vector<std::unique_ptr<Lane>> queue_pairs_;
  struct Block;
  std::unique_ptr<Block> block_;
  std::optional<Trouble> trouble_;
  bool armed_ = false;
};

}  // namespace weft::net_verbs
