// One connection, in one direction, over all rails that the two sides have in common. Sender and
// Receiver are its two ends. One thread at a time.
//
// A connection lives in epochs. In each epoch the two sides agree over the control socket on the
// working rails and create queue pairs. They use them until a work request or a port fails. Then
// both stop, destroy the queue pairs, and meet again for the next epoch. The sender sends again all
// messages that the receiver does not have completely. So no message is lost or delivered twice, on
// any rail. If one rail is down, the others carry everything. It is used again when it is back.
// A connection on one device has the host's other devices as spares. They get queue pairs when
// something has failed, and carry data only while its own device cannot.
//
// The connection breaks, with a reason, if there is no rail for WEFT_IB_RECOVERY seconds, or if the
// peer's process or host is gone. It detects a process that ends at once, and a host that vanishes
// after 20 s. It detects a port of this host that goes down at once if there is another rail.
// Otherwise it takes the device's own retries: 4.096 us * 2^NCCL_IB_TIMEOUT for each of
// NCCL_IB_RETRY_CNT + 1.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/net_verbs/control.h"
#include "plugins/net_verbs/queue_pairs.h"
#include "src/base/config.h"
#include "src/transport/socket.h"

namespace weft::net_verbs {

struct ConnectionSettings {
  LaneSettings lanes;
  double recovery_s = 20;
};
ConnectionSettings connection_settings(const Config& config, int traffic_class);

class Connection : protected LaneUser {
 public:
  Connection(Fd control, std::string peer_address, std::vector<Port> rails, bool connecting,
             const ConnectionSettings& settings);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Does all work that is possible now. Never throws: see broken().
  void progress() noexcept;
  bool is_up() const { return state_ == State::kUp; }
  bool broken() const { return state_ == State::kBroken; }
  ncclResult_t code() const { return code_; }
  const std::string& failure() const { return failure_; }

  // "host-2 (pid 812, 10.0.0.2:40123)"
  std::string peer() const;
  const std::vector<Port>& rails() const { return rails_; }
  // Descriptors to sleep on until progress() has something to do.
  int waits_for(pollfd* descriptors, int most) noexcept;

 protected:
  // The lanes that work in this epoch.
  QueuePairs& lanes() { return *queue_pairs_; }
  const std::vector<LaneRate>& live_lanes() const { return live_; }
  bool splits() const { return settings_.lanes.split; }
  // A message got through, so earlier trouble is over.
  void made_progress() { deadline_.reset(); }
  void give_up(ncclResult_t code, const std::string& why);
  Control& control() { return control_; }

  virtual void epoch_began() = 0;  // lanes are up
  virtual void epoch_ended() = 0;  // lanes are gone, and nothing is in flight
  virtual void pump() = 0;         // posts all requests that can be posted
  virtual Finished finished() const { return {}; }
  virtual void peer_finished(const Finished&) {}

 private:
  using Clock = std::chrono::steady_clock;
  enum class State {
    kGreeting,  // waits for the peer's Hello
    kMeeting,   // waits for its Meet
    kStranded,  // waits for a working rail
    kStarting,  // waits for its Ready
    kUp,
    kBroken,
  };
  void move();
  void watch(int descriptor);
  bool has_news() const;
  void listen();
  void greet(const Hello& hello);
  void meet(uint32_t epoch);
  uint32_t wanted_pairs() const;
  void begin();
  void strand();
  void start_deadline();
  void look_at_trouble();
  void look_at_ports();
  uint32_t rails_up(bool ask);
  uint32_t pairs_in_use() const;
  const Port& own_port(uint32_t pair) const;
  void forgive();
  std::string way(uint32_t lane) const;

  const bool connecting_;
  const ConnectionSettings settings_;
  const std::vector<Port> rails_;
  const std::string peer_address_;
  Control control_;
  std::optional<Hello> peer_;
  std::vector<RailPair> pairs_;
  LaneSettings lane_settings_;

  State state_ = State::kGreeting;
  uint32_t epoch_ = 0;
  Meet own_meet_;
  std::optional<Meet> peer_meet_;  // the newest
  uint32_t peer_ready_ = 0;        // the epoch, plus one
  // Pairs that failed although their ports were up. Avoided until this side's port has come up
  // again, or for a while if spares serve.
  uint32_t avoid_ = 0;
  // While only spares carry data: when the others are tried again, and how long after a begin.
  Clock::time_point try_own_at_;
  std::chrono::seconds try_own_after_{10};
  std::array<uint32_t, kMaxRails> avoided_at_{};  // Hca::times_up() at that time
  std::unique_ptr<QueuePairs> queue_pairs_;
  std::vector<LaneRate> live_;

  uint32_t changes_seen_ = 0;
  std::string last_trouble_;
  std::optional<Clock::time_point> deadline_;
  bool try_again_ = false;        // a pair failed that should work
  Clock::time_point stranded_{};  // when it last queried the ports
  Clock::time_point looked_{};    // when it last checked sockets and ports
  bool slept_ = true;
  ncclResult_t code_ = ncclSuccess;
  std::string failure_;
  Fd poller_, always_ready_;
};

}  // namespace weft::net_verbs
