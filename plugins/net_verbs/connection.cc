// The normal operation of connection.h. epochs.cc has the rest.
#include "plugins/net_verbs/connection.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace weft::net_verbs {
namespace {

// How often a busy connection checks its sockets and ports.
constexpr auto kLookEvery = std::chrono::milliseconds(1);

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
  lanes.adaptive_routing = config.ib_adaptive_routing;
  lanes.adaptive_from = config.ib_ar_threshold;
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
  watch(control_.descriptor());
  Hello hello;
  hello.rails = static_cast<uint32_t>(rails_.size());
  hello.lanes_per_rail = settings_.lanes.lanes_per_rail;
  hello.pid = getpid();
  gethostname(hello.host, sizeof hello.host - 1);
  for (size_t r = 0; r < rails_.size(); r++) {
    hello.rail[r] = rails_[r].address;
    watch(rails_[r].hca->context()->async_fd);
  }
  control_.say(Word::kHello, hello);
}

Connection::~Connection() = default;

void Connection::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(poller_.get(), EPOLL_CTL_ADD, descriptor, &event);
}

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
  queue_pairs_.reset();  // from here on the peer's device can write nothing
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
  if (queue_pairs_ != nullptr && state_ == State::kUp) {
    if (slept_) queue_pairs_->disarm();
    queue_pairs_->poll(*this);
    if (queue_pairs_->trouble()) {
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

// Handles the peer's words on the control socket.
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
        if (queue_pairs_ != nullptr) queue_pairs_->poll(*this);
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
  // Data that has arrived counts, although the peer is gone.
  if (queue_pairs_ != nullptr && state_ == State::kUp) queue_pairs_->poll(*this);
  const char* how = control_.error() == 0 ? "its process ended or closed the connection"
                                          : std::strerror(control_.error());
  throw Error(ncclRemoteError, fmt::format("the connection with {} broke: {}", peer(), how));
}

void Connection::greet(const Hello& hello) {
  Hello sane = hello;
  if (peer_ || !make_sane(sane))
    fail(ncclInvalidUsage, "{} does not speak this plugin's language: do all hosts use the same?",
         peer_address_);
  peer_ = sane;
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

int Connection::waits_for(pollfd* descriptors, int most) noexcept {
  if (broken() || most < 1) return 0;
  slept_ = true;
  if (state_ == State::kUp) {
    // Only later completions notify. So poll once more for earlier ones.
    queue_pairs_->arm();
    bool some = false;
    try {
      some = queue_pairs_->poll(*this);
    } catch (const std::exception& error) {
      give_up(ncclInternalError, error.what());
      some = true;
    }
    if (some || (!broken() && queue_pairs_->trouble())) {
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
