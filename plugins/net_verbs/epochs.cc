// How a Connection goes from one epoch to the next; see connection.h.
#include <algorithm>
#include <bit>

#include "plugins/common/errors.h"
#include "plugins/net_verbs/connection.h"
#include "plugins/net_verbs/error_text.h"

namespace weft::net_verbs {
namespace {

// How often a stranded connection queries its ports.
constexpr auto kAskEvery = std::chrono::milliseconds(100);
constexpr std::chrono::seconds kMostUntilOwn{600};

}  // namespace

uint32_t Connection::rails_up(bool ask) {
  uint32_t up = 0;
  for (size_t r = 0; r < rails_.size(); r++) {
    const Port& rail = rails_[r];
    if (ask) {
      ibv_port_attr attributes{};
      const int error = verbs().query_port(rail.hca->context(), rail.address.port, &attributes);
      rail.hca->set_up(rail.address.port, error == 0 && attributes.state == IBV_PORT_ACTIVE);
    }
    if (rail.hca->is_up(rail.address.port)) up |= 1u << r;
  }
  return up;
}

// Pairs whose own rail is up. Spares are not wanted at first.
uint32_t Connection::wanted_pairs() const {
  uint32_t wanted = 0;
  for (uint32_t p = 0; p < pairs_.size(); p++) {
    const uint32_t rail = connecting_ ? pairs_[p].first : pairs_[p].second;
    if ((own_meet_.rails_up >> rail & 1) != 0 && (!pairs_[p].spare || epoch_ > 0))
      wanted |= 1u << p;
  }
  return wanted;
}

// Ends the current epoch and says Meet.
void Connection::meet(uint32_t epoch) {
  if (queue_pairs_ != nullptr) {
    queue_pairs_->quiesce(*this);
    queue_pairs_.reset();
    epoch_ended();
  }
  live_.clear();
  try_again_ = false;
  epoch_ = epoch;
  own_meet_ = {};
  own_meet_.epoch = epoch;
  own_meet_.rails_up = rails_up(true);
  forgive();
  own_meet_.pairs_to_avoid = avoid_;
  own_meet_.finished = finished();
  queue_pairs_ =
      std::make_unique<QueuePairs>(rails_, pairs_, wanted_pairs(), connecting_, lane_settings_);
  const auto count = static_cast<uint32_t>(pairs_.size()) * lane_settings_.lanes_per_rail;
  for (uint32_t l = 0; l < count; l++) own_meet_.lanes[l] = queue_pairs_->address(l);
  for (const int descriptor : queue_pairs_->descriptors()) watch(descriptor);
  control_.say(Word::kMeet, own_meet_);
  state_ = State::kMeeting;
}

// Called when both sides have said Meet.
void Connection::begin() {
  peer_finished(peer_meet_->finished);
  const auto per_rail = lane_settings_.lanes_per_rail;
  const uint32_t avoid = own_meet_.pairs_to_avoid | peer_meet_->pairs_to_avoid;
  const auto collect = [&](uint32_t avoided, bool spares) {
    for (uint32_t l = 0; l < pairs_.size() * per_rail; l++) {
      const RailPair& pair = pairs_[l / per_rail];
      const bool there = own_meet_.lanes[l].number != 0 && peer_meet_->lanes[l].number != 0;
      if (there && pair.spare == spares && (avoided >> (l / per_rail) & 1) == 0)
        live_.push_back({l, l / per_rail, pair.speed_mbps});
    }
  };
  for (const uint32_t avoided : {avoid, 0u})
    for (const bool spares : {false, true})
      if (live_.empty()) collect(avoided, spares);
  // Both sides see this, and both go on to an epoch with spares.
  if (live_.empty() && epoch_ == 0 && pairs_.back().spare) return meet(1);
  if (live_.empty()) {
    if (last_trouble_.empty()) last_trouble_ = "no port is up on both sides";
    if (!deadline_)
      deadline_ = Clock::now() +
                  std::chrono::milliseconds(static_cast<int64_t>(settings_.recovery_s * 1000));
    state_ = State::kStranded;
    return;
  }
  try {
    for (const LaneRate& lane : live_)
      queue_pairs_->connect(lane.lane, {peer_->rail.data(), peer_->rails},
                            peer_meet_->lanes[lane.lane]);
  } catch (const Error& error) {
    if (epoch_ == 0) throw;
    // The link is unstable. Its addresses may not be back yet.
    last_trouble_ = error.what();
    try_again_ = true;
    return strand();
  }
  try_own_at_ = Clock::now() + try_own_after_;
  state_ = State::kStarting;
  control_.say(Word::kReady, Ready{epoch_});
  if (epoch_ > 0)
    net_common::inform(fmt::format("goes on with {} over {} of {} ways (epoch {})", peer(),
                                   std::popcount(pairs_in_use()), pairs_.size(), epoch_));
}

const Port& Connection::own_port(uint32_t pair) const {
  return rails_[connecting_ ? pairs_[pair].first : pairs_[pair].second];
}

void Connection::forgive() {
  for (uint32_t p = 0; p < pairs_.size(); p++)
    if (own_port(p).hca->times_up(own_port(p).address.port) != avoided_at_[p]) avoid_ &= ~(1u << p);
}

void Connection::strand() {
  state_ = State::kStranded;
  stranded_ = Clock::now();
  start_deadline();
}

void Connection::start_deadline() {
  if (deadline_) return;
  deadline_ =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(settings_.recovery_s * 1000));
}

uint32_t Connection::pairs_in_use() const {
  uint32_t pairs = 0;
  for (const LaneRate& lane : live_) pairs |= 1u << lane.pair;
  return pairs;
}

void Connection::look_at_trouble() {
  const Trouble trouble = *queue_pairs_->trouble();
  const uint32_t epoch = epoch_;
  listen();  // a peer that closed or gave up gives a better reason
  if (epoch_ != epoch) return;
  const Explanation words = explain(trouble.status);
  const std::string text =
      fmt::format("{}: {} ({}, vendor code {}); usually {}", way(trouble.lane), words.what,
                  verbs().wc_status_str(trouble.status), trouble.vendor, words.cause);
  if (!is_link_trouble(trouble.status)) throw Error(ncclRemoteError, text);
  if (trouble.status != IBV_WC_WR_FLUSH_ERR || last_trouble_.empty()) last_trouble_ = text;
  net_common::inform(text);
  const auto now = Clock::now();
  if (deadline_ && now > *deadline_)
    throw Error(ncclRemoteError,
                fmt::format("no data got through for {} s although the peer is there: {}",
                            settings_.recovery_s, last_trouble_));
  start_deadline();
  const uint32_t pair = trouble.lane / lane_settings_.lanes_per_rail;
  avoid_ |= 1u << pair;
  avoided_at_[pair] = own_port(pair).hca->times_up(own_port(pair).address.port);
  meet(epoch_ + 1);
}

void Connection::look_at_ports() {
  if (state_ == State::kStranded) {
    if (deadline_ && Clock::now() > *deadline_)
      throw Error(ncclRemoteError, fmt::format("no way to {} for {} s: {}", peer(),
                                               settings_.recovery_s, last_trouble_));
    if (Clock::now() - stranded_ < kAskEvery) return;
    stranded_ = Clock::now();
    const bool came_up = (rails_up(true) & ~own_meet_.rails_up) != 0;
    if (came_up || try_again_) meet(epoch_ + 1);
    return;
  }
  if (state_ != State::kUp) return;
  // A way may be good again though no port of this side has changed.
  if (pairs_[live_.front().pair].spare && avoid_ != 0 && Clock::now() > try_own_at_) {
    avoid_ = 0;
    try_own_after_ = std::min<std::chrono::seconds>(2 * try_own_after_, kMostUntilOwn);
    return meet(epoch_ + 1);
  }
  uint32_t changes = 1;
  for (const Port& rail : rails_) changes += rail.hca->changes();
  if (changes == changes_seen_) return;
  changes_seen_ = changes;
  const uint32_t up = rails_up(false);
  uint32_t lost = 0, kept = 0, gained = 0;
  for (uint32_t p = 0; p < pairs_.size(); p++) {
    const uint32_t rail = connecting_ ? pairs_[p].first : pairs_[p].second;
    const bool is_up = (up >> rail & 1) != 0, used = (pairs_in_use() >> p & 1) != 0;
    const bool was_up = (own_meet_.rails_up >> rail & 1) != 0;
    if (used) (is_up ? kept : lost) |= 1u << p;
    if (is_up && pairs_[p].spare) kept |= 1u << p;
    if (is_up && !was_up && !pairs_[p].spare) gained |= 1u << p;
  }
  // Without another rail, the device's own retries bridge a short gap. They end in a failed
  // request.
  if ((lost != 0 && kept != 0) || gained != 0) {
    if (lost != 0)
      last_trouble_ =
          way(std::countr_zero(lost) * lane_settings_.lanes_per_rail) + ": the port went down";
    meet(epoch_ + 1);
  }
}

}  // namespace weft::net_verbs
