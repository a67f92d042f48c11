// See queue_pairs.h.
#include "plugins/net_verbs/queue_pairs.h"

#include <endian.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "plugins/net_verbs/error_text.h"
#include "src/base/error.h"
#include "src/base/siphash.h"

namespace weft::net_verbs {
namespace {

constexpr uint32_t kSendDepth = 128;
// A receiver needs an entry per piece; if there is none, the peer waits and retries. A sender needs
// one per invitation, of which there are at most kSlots.
constexpr uint32_t kPieceDepth = 256, kInvitationDepth = 2 * kSlots;
constexpr uint32_t kInlineBytes = 64;
constexpr uint32_t kPacketMask = 0xffffff;
constexpr auto kQuiesceTime = std::chrono::seconds(2);

// wr_id: the kind, the lane, a slot or the index of a receive.
// kWrite: data that a kData request after it announces.
enum Kind : uint64_t { kData, kWrite, kInvitation, kReceive };
uint64_t wr_id(Kind kind, uint32_t lane, uint32_t index) {
  return kind << 56 | static_cast<uint64_t>(lane) << 32 | index;
}

struct Destroy {
  void operator()(ibv_comp_channel* channel) const { verbs().destroy_comp_channel(channel); }
  void operator()(ibv_cq* queue) const { verbs().destroy_cq(queue); }
  void operator()(ibv_qp* pair) const { verbs().destroy_qp(pair); }
  void operator()(ibv_mr* memory) const { verbs().dereg_mr(memory); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

}  // namespace

struct QueuePairs::Rail {
  Owned<ibv_comp_channel> channel;
  Owned<ibv_cq> queue;
  Owned<ibv_mr> block;
};

struct QueuePairs::Lane {
  uint32_t index = 0, pair = 0;
  Owned<ibv_qp> queue;
  uint32_t first_packet = 0, inline_bytes = 0;
  uint32_t sends = 0, receives = 0;  // posted and not completed
  bool connected = false;
};

// Registered memory for invitations: those a receiver sends, or those a sender gets.
struct QueuePairs::Block {
  std::vector<Invitation> invitations;
};

ibv_qp_attr ready_to_receive(const LaneSettings& settings, const RailAddress& own,
                             const Gid& own_gid, const RailAddress& other, const Gid& other_gid,
                             const LaneAddress& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(own.mtu, other.mtu));
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.first_packet;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.sl = static_cast<uint8_t>(settings.service_level);
  attributes.ah_attr.port_num = own.port;
  attributes.ah_attr.dlid = other.lid;
  // InfiniBand needs the global address only between subnets.
  const bool global = own.ethernet != 0 || common_bits(own_gid, other_gid) < 64;
  if (global) {
    attributes.ah_attr.is_global = 1;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, other_gid.bytes.data(), other_gid.bytes.size());
    attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(own_gid.index);
    attributes.ah_attr.grh.hop_limit = 255;
    attributes.ah_attr.grh.traffic_class = static_cast<uint8_t>(settings.traffic_class);
  }
  return attributes;
}

bool announces_apart(const LaneSettings& settings, const RailAddress& own, uint64_t bytes) {
  const bool adaptive =
      settings.adaptive_routing == -2 ? own.ethernet == 0 : settings.adaptive_routing != 0;
  return adaptive && bytes > settings.adaptive_from;
}

PieceRequests::PieceRequests(const Piece& piece, uint64_t from, uint32_t from_key, uint64_t to,
                             uint32_t to_key, bool apart)
    : data{from, piece.bytes, from_key}, count(apart ? 2 : 1) {
  ibv_send_wr &write = list[0], &announcement = list[count - 1];
  write.sg_list = &data;
  write.num_sge = piece.bytes == 0 ? 0 : 1;
  for (uint32_t i = 0; i < count; i++) {
    list[i].opcode = IBV_WR_RDMA_WRITE;
    list[i].send_flags = IBV_SEND_SIGNALED;  // so that every completion frees one entry
    list[i].wr.rdma.remote_addr = to;
    list[i].wr.rdma.rkey = to_key;
  }
  if (apart) write.next = &announcement;
  announcement.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  announcement.imm_data = htobe32(piece.pack());
}

uint32_t QueuePairs::own_rail(uint32_t lane) const {
  const RailPair& pair = pairs_[lane / settings_.lanes_per_rail];
  return connecting_ ? pair.first : pair.second;
}

uint32_t QueuePairs::peer_rail(uint32_t lane) const {
  const RailPair& pair = pairs_[lane / settings_.lanes_per_rail];
  return connecting_ ? pair.second : pair.first;
}

QueuePairs::QueuePairs(std::span<const Port> rails, std::span<const RailPair> pairs,
                       uint32_t wanted, bool connecting, const LaneSettings& settings)
    : ports_(rails), pairs_(pairs), connecting_(connecting), settings_(settings) {
  const auto count = static_cast<uint32_t>(pairs.size()) * settings.lanes_per_rail;
  const uint32_t depth = connecting ? kInvitationDepth : kPieceDepth;
  block_ = std::make_unique<Block>();
  block_->invitations.resize(connecting ? count * kInvitationDepth : kSlots);
  rails_.resize(rails.size());
  queue_pairs_.resize(count);
  for (uint32_t l = 0; l < count; l++) {
    if ((wanted >> (l / settings.lanes_per_rail) & 1) == 0) continue;
    const uint32_t r = own_rail(l);
    Rail& rail = rails_[r];
    const Port& port = rails[r];
    const std::string where = describe(port.address);
    if (rail.queue == nullptr) {
      rail.channel.reset(verbs().create_comp_channel(port.hca->context()));
      if (rail.channel == nullptr) fail_errno(errno, "{} gives no completion channel", where);
      const int flags = fcntl(rail.channel->fd, F_GETFL);
      fcntl(rail.channel->fd, F_SETFL, flags | O_NONBLOCK);
      rail.queue.reset(verbs().create_cq(port.hca->context(),
                                         static_cast<int>(count * (kSendDepth + depth)), nullptr,
                                         rail.channel.get(), 0));
      if (rail.queue == nullptr) fail_errno(errno, "{} gives no completion queue", where);
      const size_t bytes = block_->invitations.size() * sizeof(Invitation);
      rail.block.reset(verbs().reg_mr(port.hca->pd(), block_->invitations.data(), bytes,
                                      IBV_ACCESS_LOCAL_WRITE));
      if (rail.block == nullptr)
        fail(ncclSystemError, "{}: {}", where, explain_registration(errno, bytes, false));
    }
    auto lane = std::make_unique<Lane>();
    lane->index = l;
    lane->pair = l / settings.lanes_per_rail;
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = rail.queue.get();
    init.cap.max_send_wr = kSendDepth;
    init.cap.max_recv_wr = depth;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    init.cap.max_inline_data = kInlineBytes;
    init.qp_type = IBV_QPT_RC;
    lane->queue.reset(verbs().create_qp(port.hca->pd(), &init));
    if (lane->queue == nullptr) {
      init.cap.max_inline_data = 0;
      lane->queue.reset(verbs().create_qp(port.hca->pd(), &init));
    }
    if (lane->queue == nullptr) fail_errno(errno, "{} gives no queue pair", where);
    lane->inline_bytes = init.cap.max_inline_data;
    fill_random(&lane->first_packet, sizeof lane->first_packet);
    lane->first_packet &= kPacketMask;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = static_cast<uint16_t>(settings.partition);
    attributes.port_num = port.address.port;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    const int error =
        verbs().modify_qp(lane->queue.get(), &attributes,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0) fail_errno(error, "{}: a queue pair cannot be initialized", where);
    for (uint32_t i = 0; i < depth; i++) post_receive(*lane, i);
    queue_pairs_[l] = std::move(lane);
  }
}

// Destroys queue pairs before their completion queues.
QueuePairs::~QueuePairs() {
  queue_pairs_.clear();
  rails_.clear();
}

LaneAddress QueuePairs::address(uint32_t lane) const {
  if (queue_pairs_[lane] == nullptr) return {};
  return {queue_pairs_[lane]->queue->qp_num, queue_pairs_[lane]->first_packet};
}

void QueuePairs::connect(uint32_t index, std::span<const RailAddress> peer_rails,
                         const LaneAddress& peer) {
  Lane& lane = *queue_pairs_[index];
  const RailPair& pair = pairs_[lane.pair];
  const RailAddress& own = ports_[own_rail(index)].address;
  const RailAddress& other = peer_rails[peer_rail(index)];
  const Gid& own_gid = own.gids[connecting_ ? pair.first_gid : pair.second_gid];
  const Gid& other_gid = other.gids[connecting_ ? pair.second_gid : pair.first_gid];
  ibv_qp_attr attributes = ready_to_receive(settings_, own, own_gid, other, other_gid, peer);
  int error =
      verbs().modify_qp(lane.queue.get(), &attributes,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0)
    fail_errno(error,
               "{} with address {} finds no way to {} with address {} (NCCL_IB_GID_INDEX and "
               "NCCL_IB_ADDR_RANGE choose other addresses, NCCL_IB_HCA other devices)",
               describe(own), describe(own_gid), describe(other), describe(other_gid));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = static_cast<uint8_t>(settings_.timeout);
  attributes.retry_cnt = static_cast<uint8_t>(settings_.retries);
  attributes.rnr_retry = 7;  // no limit, because a receiver may be slow
  attributes.sq_psn = lane.first_packet;
  attributes.max_rd_atomic = 1;
  error = verbs().modify_qp(lane.queue.get(), &attributes,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0)
    fail_errno(error,
               "{}: a queue pair cannot be started (NCCL_IB_TIMEOUT {}, NCCL_IB_RETRY_CNT "
               "{})",
               describe(own), settings_.timeout, settings_.retries);
  lane.connected = true;
}

void QueuePairs::post_receive(Lane& lane, uint32_t index) {
  ibv_sge part{};
  ibv_recv_wr request{}, *bad = nullptr;
  request.wr_id = wr_id(kReceive, lane.index, index);
  if (connecting_) {
    part.addr =
        reinterpret_cast<uint64_t>(&block_->invitations[lane.index * kInvitationDepth + index]);
    part.length = sizeof(Invitation);
    part.lkey = rails_[own_rail(lane.index)].block->lkey;
    request.sg_list = &part;
    request.num_sge = 1;
  }
  if (ibv_post_recv(lane.queue.get(), &request, &bad) == 0) lane.receives++;
}

// If only the first of two requests is posted, both are posted again: the data is the same.
bool QueuePairs::start(Lane& lane, ibv_send_wr& first) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(lane.queue.get(), &first, &bad);
  for (const ibv_send_wr* posted = &first; posted != nullptr && (error == 0 || posted != bad);
       posted = posted->next)
    lane.sends++;
  if (error == ENOMEM) return false;
  if (error != 0 && !trouble_) trouble_ = Trouble{IBV_WC_LOC_QP_OP_ERR, 0, lane.index};
  return error == 0;
}

bool QueuePairs::post(uint32_t index, const Piece& piece, uint64_t from, uint32_t from_key,
                      uint64_t to, uint32_t to_key, bool may_inline) {
  Lane& lane = *queue_pairs_[index];
  const bool apart = announces_apart(settings_, ports_[own_rail(index)].address, piece.bytes);
  PieceRequests requests(piece, from, from_key, to, to_key, apart);
  if (lane.sends + requests.count > kSendDepth) return false;
  requests.list[0].wr_id = wr_id(kWrite, index, piece.slot);
  requests.list[requests.count - 1].wr_id = wr_id(kData, index, piece.slot);
  if (may_inline && piece.bytes <= lane.inline_bytes)
    requests.list[0].send_flags |= IBV_SEND_INLINE;
  return start(lane, requests.list[0]);
}

bool QueuePairs::post(uint32_t index, const Invitation& invitation) {
  Lane& lane = *queue_pairs_[index];
  if (lane.sends == kSendDepth) return false;
  Invitation& stays = block_->invitations[invitation.message % kSlots];
  stays = invitation;
  ibv_sge part{reinterpret_cast<uint64_t>(&stays), sizeof stays,
               rails_[own_rail(index)].block->lkey};
  ibv_send_wr request{};
  request.wr_id = wr_id(kInvitation, index, 0);
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  if (sizeof stays <= lane.inline_bytes) request.send_flags |= IBV_SEND_INLINE;
  return start(lane, request);
}

void QueuePairs::complete(LaneUser& user, const ibv_wc& wc) {
  const auto index = static_cast<uint32_t>(wc.wr_id >> 32 & 0xffffff);
  const auto which = static_cast<uint32_t>(wc.wr_id);
  Lane& lane = *queue_pairs_[index];
  const uint64_t kind = wc.wr_id >> 56;
  (kind == kReceive ? lane.receives : lane.sends)--;
  if (wc.status != IBV_WC_SUCCESS) {
    const bool follows = wc.status == IBV_WC_WR_FLUSH_ERR;
    if (!trouble_ || (trouble_->status == IBV_WC_WR_FLUSH_ERR && !follows))
      trouble_ = Trouble{wc.status, wc.vendor_err, index};
    return;
  }
  if (kind == kData) user.sent(which);
  if (kind != kReceive) return;
  if (connecting_) {
    const Invitation invitation = block_->invitations[index * kInvitationDepth + which];
    post_receive(lane, which);
    user.invited(invitation);
  } else {
    post_receive(lane, which);
    user.arrived(Piece::unpack(be32toh(wc.imm_data)));
  }
}

bool QueuePairs::poll(LaneUser& user) {
  bool some = false;
  for (const Rail& rail : rails_) {
    if (rail.queue == nullptr) continue;
    std::array<ibv_wc, 16> done;
    int count = 0;
    do {
      count = ibv_poll_cq(rail.queue.get(), done.size(), done.data());
      for (int i = 0; i < count; i++) complete(user, done[static_cast<size_t>(i)]);
      some = some || count > 0;
    } while (count == static_cast<int>(done.size()));
  }
  return some;
}

void QueuePairs::quiesce(LaneUser& user) {
  for (const auto& lane : queue_pairs_) {
    if (lane == nullptr || !lane->connected) continue;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    verbs().modify_qp(lane->queue.get(), &attributes, IBV_QP_STATE);
  }
  // Every posted request completes, as done or as flushed. So do receives posted meanwhile.
  const auto deadline = std::chrono::steady_clock::now() + kQuiesceTime;
  const auto open = [&] {
    return std::any_of(queue_pairs_.begin(), queue_pairs_.end(), [](const auto& lane) {
      return lane != nullptr && lane->connected && lane->sends + lane->receives > 0;
    });
  };
  while (open() && std::chrono::steady_clock::now() < deadline) poll(user);
}

void QueuePairs::arm() {
  for (const Rail& rail : rails_)
    if (rail.queue != nullptr) ibv_req_notify_cq(rail.queue.get(), 0);
  armed_ = true;
}

void QueuePairs::disarm() {
  if (!armed_) return;
  armed_ = false;
  for (const Rail& rail : rails_) {
    ibv_cq* queue = nullptr;
    void* ignored = nullptr;
    while (rail.channel != nullptr &&
           verbs().get_cq_event(rail.channel.get(), &queue, &ignored) == 0)
      verbs().ack_cq_events(queue, 1);
  }
}

std::vector<int> QueuePairs::descriptors() const {
  std::vector<int> all;
  for (const Rail& rail : rails_)
    if (rail.channel != nullptr) all.push_back(rail.channel->fd);
  return all;
}

}  // namespace weft::net_verbs
