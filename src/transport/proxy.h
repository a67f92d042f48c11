// The proxy moves data between FIFOs and the network. A process has few proxy threads, for any
// number of peers. Each serves a share of the streams. Host threads move data themselves, so one
// proxy thread is enough for them. GPUs do not, so several serve them if there are cores
// (proxy_threads()).
//
// A host thread that waits for lanes moves its own streams meanwhile (enter, drive, leave). No
// thread is faster than the one that needs the data. While a host thread does so, the proxy's
// thread stays out of the way. Otherwise it takes over the remaining work, sleeps in poll() on the
// sockets and an eventfd, and wakes lanes that sleep at their doors.
//
// A GPU lane's rings lie in pinned host memory, with FifoControl and the message format of fifo.h.
// It stores `tail` after a message and polls `tail` of the other direction, with system-wide
// fences. It cannot ring an eventfd. So its communicator calls keep_polling(), and the thread
// polls. Polling threads help each other. A proxy may be late because it copies a message, sleeps
// or has lost its core. Idle proxies then poll its streams.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "src/base/handles.h"
#include "src/transport/fifo.h"
#include "src/transport/stream_observer.h"

namespace weft {

class NetStream;
struct StreamFailure;

// The number of threads for a communicator: WEFT_PROXY_THREADS, or as many as the `cores` that
// `ranks` ranks share allow.
int proxy_threads(int wanted, bool for_gpus, int cores, int ranks);

// Thread-safe. Proxies live as long as the process.
class Proxy {
 public:
  // The proxy for the next stream: the first `threads` proxies of the process alternate. If it is
  // known which cores are near the NIC, a PCI device in /sys, the proxy runs on them. Streams of
  // NICs with other cores get other proxies, as long as there are any; else these run on the cores
  // of several.
  static Proxy& next(int threads = 1, const std::string& nic = "");

  Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void add(const std::shared_ptr<NetStream>& stream);
  // After this the proxy does not touch the stream. Pending data is sent first, for at most
  // `seconds`.
  void remove(const std::shared_ptr<NetStream>& stream, double seconds);
  // Streams of a higher class are served first. While they move data, lower ones have their turn in
  // every seventh round: they move what their rings hold, which is less than 4 MB, or a turn of
  // a stream of lanes.
  void set_priority(NetStream& stream, int priority);
  bool may_run_on(int core) const;

  // Lanes ring this bell after they change their rings.
  Bell bell() { return {&door_, wake_.get()}; }
  void wake() noexcept;

  // For a thread that moves streams itself. leave(true) hands the remaining work to the proxy's
  // thread at once. leave(false): nothing is urgent.
  void enter() noexcept;
  void leave(bool unfinished) noexcept;
  // Moves one stream, see NetStream::progress(). Also false if the proxy is busy with it.
  bool drive(NetStream& stream, bool eager) noexcept;
  // Moves all streams of the proxy: data of earlier operations must move too.
  bool drive_all() noexcept;
  // Adds descriptors to sleep on, for all streams. False: some stream has none, so the caller must
  // not sleep.
  bool waits_for(std::vector<pollfd>& descriptors);
  bool unsent(const NetStream& stream) noexcept;
  StreamFailure failure(const NetStream& stream);  // see NetStream::failure()
  // Closes a stream's connection, so that nobody accesses the memory of a failed operation any
  // more.
  void abandon(NetStream& stream) noexcept;

  // While any caller keeps this on, the thread polls its streams, because their news ring no bell.
  // It polls less and less often while nothing happens.
  void keep_polling(bool on) noexcept;

  // See NetStream::observe().
  void observe(NetStream& stream, std::unique_ptr<StreamObserver> observer);
  // Until forget(), the observer hears what the thread does. If the thread sleeps, it hears so at
  // once.
  void observe(ProxyObserver& observer);
  void forget(ProxyObserver& observer) noexcept;

 private:
  void run_on(const std::vector<std::string>& places);
  void loop();
  void become(ProxyState next);
  struct Told {
    ProxyObserver* observer;
    ProxyState state;  // the last state it was told
  };
  static void tell(Told& told, ProxyState next);
  using Clock = std::chrono::steady_clock;
  // The memory of a polling thread.
  struct Watch {
    struct Other {
      uint32_t round = 0;  // the last round it was seen to begin
      Clock::time_point since;
    };
    uint32_t round = 0;
    Clock::time_point last_move = Clock::now();
    Clock::duration patience{};  // time before it helps other proxies
    std::vector<Other> others;
  };
  void watch(Watch& watch);
  bool look_after_streams(uint32_t round, Clock::time_point now, bool own) noexcept;
  void sort_streams();
  template <typename Move>
  bool serve(const Move& move) noexcept;
  bool help(Watch& watch, Clock::time_point now) const noexcept;
  std::unique_lock<std::shared_mutex> interrupt() noexcept;
  bool keep_out(uint64_t& visits_seen);
  void clear_wake() noexcept;

  Doorbell door_;
  Fd wake_;
  // Protects streams_ and their state. A holder of the shared lock may use only streams it has
  // claimed.
  std::shared_mutex mutex_;
  // Threads that want the lock, which a polling thread hardly releases.
  std::atomic<uint32_t> interrupts_{0};
  std::vector<std::shared_ptr<NetStream>> streams_;  // the highest class first
  std::atomic<uint32_t> skipped_{0};                 // rounds in a row without lower classes
  std::atomic<uint32_t> drivers_{0}, stays_{0};
  std::atomic<uint64_t> visits_{0};   // of drivers, in total
  std::atomic<bool> urgent_{false};   // a driver left work behind
  std::atomic<bool> polling_{false};  // the thread sleeps on sockets: drivers must wake it
  std::atomic<uint32_t> round_{0};    // of a polling thread
  std::mutex observers_mutex_;        // protects observers_
  std::vector<Told> observers_;
  std::atomic<bool> observed_{false};  // observers_ is not empty
  std::atomic<ProxyState> state_{ProxyState::kIdle};
  pthread_t thread_{};
};

}  // namespace weft
