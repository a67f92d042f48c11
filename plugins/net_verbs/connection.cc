// See connection.h.
#include "plugins/net_verbs/connection.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "plugins/net_socket/errors.h"
#include "plugins/net_verbs/words.h"

namespace weft::net_verbs {
namespace {

// How often a busy connection looks at its sockets and ports, and a stranded one asks for ports.
constexpr auto kLookEvery = std::chrono::milliseconds(1);
constexpr auto kAskEvery = std::chrono::milliseconds(100);

void watch(int poller, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event);
}

}  // namespace

ConnectionSettings connection_settings(const Config& config, int traffic_class) {
  ConnectionSettings settings;
  LaneSettings& lanes = settings.lanes;
  lanes.lanes_per_rail = static_cast<uint32_t>(
      std::clamp(config.ib_qps_per_connection, 1, static_cast<int>(kMaxLanesPerRail)));
  lanes.split = config.ib_split_data_on_qps;
  lanes.timeout = std::clamp(config.ib_timeout, 1, 31);
  lanes.retries = std::clamp(config.ib_retry_cnt, 0, 7);
  lanes.service_level = config.ib_sl;
  lanes.traffic_class = config.ib_tc != 0 || traffic_class < 0 ? config.ib_tc : traffic_class;
  lanes.partition = config.ib_pkey;
  settings.recovery_s = config.ib_recovery_s;
  return settings;
}

Connection::Connection(Fd control, std::string peer_address, std::vector<Port> rails,
                       bool connecting, const ConnectionSettings& settings)
    : connecting_(connecting),
      settings_(settings),
      rails_(std::move(rails)),
      peer_address_(std::move(peer_address)),
      control_(std::move(control)),
      poller_(epoll_create1(EPOLL_CLOEXEC)),
      always_ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  watch(poller_.get(), control_.descriptor());
  Hello hello;
  hello.rails = static_cast<uint32_t>(rails_.size());
  hello.lanes_per_rail = settings_.lanes.lanes_per_rail;
  hello.pid = getpid();
  gethostname(hello.host, sizeof hello.host - 1);
  for (size_t r = 0; r < rails_.size(); r++) {
    hello.rail[r] = rails_[r].address;
    watch(poller_.get(), rails_[r].hca->context()->async_fd);
  }
  control_.say(Word::kHello, hello);
}

Connection::~Connection() = default;

std::string Connection::peer() const {
  if (!peer_) return peer_address_;
  return fmt::format("{} (pid {}, {})", peer_->host, peer_->pid, peer_address_);
}

std::string Connection::way(uint32_t lane) const {
  const RailPair& pair = pairs_[lane / lane_settings_.lanes_per_rail];
  const RailAddress& own = rails_[connecting_ ? pair.first : pair.second].address;
  const RailAddress& other = peer_->rail[connecting_ ? pair.second : pair.first];
  return fmt::format("{} to {} of {}", describe(own), describe(other), peer());
}

void Connection::give_up(ncclResult_t code, const std::string& why) {
  if (broken()) return;
  state_ = State::kBroken;
  code_ = code;
  failure_ = why;
  Refuse refuse;
  std::strncpy(refuse.text, why.c_str(), sizeof refuse.text - 1);
  control_.say(Word::kRefuse, refuse);
  lanes_.reset();  // what the peer's device may still write ends here
}

void Connection::progress() noexcept {
  if (broken()) return;
  try {
    move();
  } catch (const Error& error) {
    give_up(error.code(), error.what());
  } catch (const std::exception& error) {
    give_up(ncclInternalError, error.what());
  }
}

void Connection::move() {
  if (lanes_ != nullptr && state_ == State::kUp) {
    if (slept_) lanes_->disarm();
    lanes_->poll(*this);
    if (lanes_->trouble()) {
      look_at_trouble();
    } else {
      pump();
    }
  }
  const auto now = Clock::now();
  if (!slept_ && now - looked_ < kLookEvery) return;
  looked_ = now;
  if (slept_ || control_.has_unsent() || has_news()) {
    slept_ = false;
    for (const Port& rail : rails_) rail.hca->read_events();
    listen();
  }
  look_at_ports();
}

bool Connection::has_news() const {
  epoll_event event{};
  return epoll_wait(poller_.get(), &event, 1, 0) > 0;
}

// What the peer says.
void Connection::listen() {
  control_.move();
  Word word{};
  while (!broken() && control_.hear(word)) {
    switch (word) {
      case Word::kHello:
        greet(control_.payload<Hello>());
        break;
      case Word::kMeet:
        peer_meet_ = control_.payload<Meet>();
        if (state_ == State::kGreeting) break;
        if (peer_meet_->epoch > epoch_) meet(peer_meet_->epoch);
        if (peer_meet_->epoch == epoch_ && state_ == State::kMeeting) begin();
        break;
      case Word::kReady:
        peer_ready_ = control_.payload<Ready>().epoch + 1;
        break;
      case Word::kRefuse: {
        Refuse refuse = control_.payload<Refuse>();
        refuse.text[sizeof refuse.text - 1] = '\0';
        throw Error(ncclRemoteError, fmt::format("{} gave up: {}", peer(), refuse.text));
      }
      case Word::kBye:
        if (lanes_ != nullptr) lanes_->poll(*this);
        peer_finished(control_.payload<Bye>().finished);
        break;
    }
  }
  if (state_ == State::kStarting && peer_ready_ == epoch_ + 1) {
    state_ = State::kUp;
    changes_seen_ = 0;
    epoch_began();
    pump();
  }
  if (!control_.ended() || broken()) return;
  // What has arrived counts, although the peer is gone.
  if (lanes_ != nullptr && state_ == State::kUp) lanes_->poll(*this);
  const char* how = control_.error() == 0 ? "its process ended or closed the connection"
                                          : std::strerror(control_.error());
  throw Error(ncclRemoteError, fmt::format("the connection with {} broke: {}", peer(), how));
}

void Connection::greet(const Hello& hello) {
  if (hello.magic != Hello::kMagic || hello.rails == 0 || hello.rails > kMaxRails || peer_)
    fail(ncclInvalidUsage, "{} does not speak this plugin's language: do all hosts use the same?",
         peer_address_);
  peer_ = hello;
  peer_->host[sizeof peer_->host - 1] = '\0';
  for (RailAddress& rail : peer_->rail) {
    rail.device[sizeof rail.device - 1] = '\0';
    rail.gid_count = std::min<uint8_t>(rail.gid_count, RailAddress::kGids);
  }
  std::vector<RailAddress> own;
  for (const Port& port : rails_) own.push_back(port.address);
  const std::span<const RailAddress> other(peer_->rail.data(), hello.rails);
  pairs_ = connecting_ ? pair_rails(own, other) : pair_rails(other, own);
  if (pairs_.empty())
    fail(ncclInvalidUsage,
         "no RDMA port here goes together with one of {}: {} here, {} there (InfiniBand or RoCE, "
         "IPv4 or IPv6, RoCE version)",
         peer(), describe(own[0]), describe(other[0]));
  lane_settings_ = settings_.lanes;
  lane_settings_.lanes_per_rail =
      std::clamp<uint32_t>(hello.lanes_per_rail, 1, lane_settings_.lanes_per_rail);
  meet(peer_meet_ ? peer_meet_->epoch : 0);
  if (peer_meet_) begin();
}

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

// Ends the epoch there was, and says so.
void Connection::meet(uint32_t epoch) {
  if (lanes_ != nullptr) {
    lanes_->quiesce(*this);
    lanes_.reset();
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
  lanes_ = std::make_unique<Lanes>(rails_, pairs_, own_meet_.rails_up, connecting_, lane_settings_);
  const auto count = static_cast<uint32_t>(pairs_.size()) * lane_settings_.lanes_per_rail;
  for (uint32_t l = 0; l < count; l++) own_meet_.lanes[l] = lanes_->address(l);
  for (const int descriptor : lanes_->descriptors()) watch(poller_.get(), descriptor);
  control_.say(Word::kMeet, own_meet_);
  state_ = State::kMeeting;
}

// Both have said Meet.
void Connection::begin() {
  peer_finished(peer_meet_->finished);
  const auto per_rail = lane_settings_.lanes_per_rail;
  const uint32_t avoid = own_meet_.pairs_to_avoid | peer_meet_->pairs_to_avoid;
  const auto collect = [&](uint32_t avoided) {
    live_.clear();
    for (uint32_t l = 0; l < pairs_.size() * per_rail; l++) {
      const bool there = own_meet_.lanes[l].number != 0 && peer_meet_->lanes[l].number != 0;
      if (there && (avoided >> (l / per_rail) & 1) == 0)
        live_.push_back({l, l / per_rail, pairs_[l / per_rail].speed_mbps});
    }
  };
  collect(avoid);
  if (live_.empty()) collect(0);
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
      lanes_->connect(lane.lane, {peer_->rail.data(), peer_->rails}, peer_meet_->lanes[lane.lane]);
  } catch (const Error& error) {
    if (epoch_ == 0) throw;
    // A link that comes and goes: its addresses may not be back yet.
    last_trouble_ = error.what();
    try_again_ = true;
    return strand();
  }
  state_ = State::kStarting;
  control_.say(Word::kReady, Ready{epoch_});
  if (epoch_ > 0)
    net_socket::inform(fmt::format("goes on with {} over {} of {} ways (epoch {})", peer(),
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
  const Trouble trouble = *lanes_->trouble();
  const uint32_t epoch = epoch_;
  listen();  // a peer that has closed, or given up, explains it better
  if (epoch_ != epoch) return;
  const Explanation words = explain(trouble.status);
  const std::string text =
      fmt::format("{}: {} ({}, vendor code {}); usually {}", way(trouble.lane), words.what,
                  verbs().wc_status_str(trouble.status), trouble.vendor, words.cause);
  if (!is_link_trouble(trouble.status)) throw Error(ncclRemoteError, text);
  if (trouble.status != IBV_WC_WR_FLUSH_ERR || last_trouble_.empty()) last_trouble_ = text;
  net_socket::inform(text);
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
    if (is_up && !was_up) gained |= 1u << p;
  }
  // With no other way the device's own retries bridge a short gap; they end in a failed request.
  if ((lost != 0 && kept != 0) || gained != 0) {
    if (lost != 0)
      last_trouble_ =
          way(std::countr_zero(lost) * lane_settings_.lanes_per_rail) + ": the port went down";
    meet(epoch_ + 1);
  }
}

int Connection::waits_for(pollfd* descriptors, int most) noexcept {
  if (broken() || most < 1) return 0;
  slept_ = true;
  if (state_ == State::kUp) {
    // What completes from now on rings; what has completed before does not, so look once more.
    lanes_->arm();
    bool some = false;
    try {
      some = lanes_->poll(*this);
    } catch (const std::exception& error) {
      give_up(ncclInternalError, error.what());
      some = true;
    }
    if (some || (!broken() && lanes_->trouble())) {
      descriptors[0] = {always_ready_.get(), POLLOUT, 0};
      return 1;
    }
  }
  descriptors[0] = {poller_.get(), POLLIN, 0};
  if (control_.has_unsent() && most > 1) {
    descriptors[1] = {control_.descriptor(), POLLOUT, 0};
    return 2;
  }
  return 1;
}

}  // namespace weft::net_verbs
