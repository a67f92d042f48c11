// The proxy: what keeps the network moving. Few threads per process, whatever the number of peers;
// each has its share of the process's streams. Host threads move data themselves, so one is enough
// for them; GPUs do not, so several serve them where there are cores (proxy_threads()).
//
// A host thread that waits for lanes moves its own streams meanwhile (enter, drive, leave): no
// thread is faster than the one that needs the data. While some thread does so, the proxy's own
// thread keeps out of the way; when none does, it takes over whatever is left, sleeps in poll() on
// the sockets and an eventfd, and wakes lanes that sleep at their doors.
//
// A GPU lane uses it so: its rings lie in pinned host memory, with FifoControl and the message
// format of fifo.h; it stores `tail` after a message and polls `tail` of the other direction, with
// system-wide fences. It cannot ring an eventfd: its communicator keeps a stay(), which makes the
// thread look by itself. Such threads help each other: a stream whose proxy does not come, since it
// copies a message, naps or has lost its core, is looked after by those that have nothing to do.
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

// How many threads should serve a communicator: what WEFT_PROXY_THREADS says, or what the `cores`
// that so many `ranks` share allow.
int proxy_threads(int wanted, bool for_gpus, int cores, int ranks);

// Thread-safe. Proxies live as long as the process.
class Proxy {
 public:
  // The one for the next stream: the first `threads` of the process are dealt out in turn.
  static Proxy& next(int threads = 1);

  Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void add(const std::shared_ptr<NetStream>& stream);
  // After this the proxy does not touch the stream. What is to be sent is sent first, for at most
  // `seconds`.
  void remove(const std::shared_ptr<NetStream>& stream, double seconds);
  // Runs on the cores near this PCI device from now on, where the machine says which these are.
  void stay_near(const std::string& pci_path);

  // How lanes tell of news in their rings.
  Bell bell() { return {&door_, wake_.get()}; }
  void wake() noexcept;

  // For a thread that moves streams itself. leave(): true hands what is left to the proxy's thread
  // at once, false when there is nothing urgent.
  void enter() noexcept;
  void leave(bool unfinished) noexcept;
  // Moves one stream; see NetStream::progress(). False also when the proxy is busy with it.
  bool drive(NetStream& stream, bool eager) noexcept;
  // Moves all streams, whoever uses them: what earlier operations left behind must go on too.
  bool drive_all() noexcept;
  // Adds descriptors to sleep on, for all streams. False: some stream has none, do not sleep.
  bool waits_for(std::vector<pollfd>& descriptors);
  bool unsent(const NetStream& stream) noexcept;
  std::string failure(const NetStream& stream);  // see NetStream::failure()
  // Ends a stream's connection, so that no memory of a failed operation is touched any more.
  void abandon(NetStream& stream) noexcept;

  // While there is one, the thread looks after its streams by itself, more and more seldom while
  // nothing happens: for news that ring no bell.
  void keep_polling(bool on) noexcept;

  // See NetStream::observe().
  void observe(NetStream& stream, std::unique_ptr<StreamObserver> observer);
  // Until forget() the observer is told what the thread does; at once, if it sleeps.
  void observe(ProxyObserver& observer);
  void forget(ProxyObserver& observer) noexcept;

 private:
  void loop();
  void become(ProxyState next);
  struct Told {
    ProxyObserver* observer;
    ProxyState state;  // the last it knows of
  };
  static void tell(Told& told, ProxyState next);
  using Clock = std::chrono::steady_clock;
  // What a thread that watches remembers.
  struct Watch {
    struct Other {
      uint32_t round = 0;  // when it was last seen to begin one
      Clock::time_point since;
    };
    uint32_t round = 0;
    Clock::time_point last_move = Clock::now();
    Clock::duration patience{};  // with others
    std::vector<Other> others;
  };
  void watch(Watch& watch);
  bool look_after_streams(uint32_t round, bool own) noexcept;
  bool help(Watch& watch, Clock::time_point now) const noexcept;
  std::unique_lock<std::shared_mutex> interrupt() noexcept;
  bool keep_out(uint64_t& visits_seen);
  void clear_wake() noexcept;

  Doorbell door_;
  Fd wake_;
  // Protects streams_ and all their state; of those who share it, each what it has claimed.
  std::shared_mutex mutex_;
  std::atomic<uint32_t> interrupts_{0};  // threads that want the lock of one that hardly lets go
  std::vector<std::shared_ptr<NetStream>> streams_;
  std::atomic<uint32_t> drivers_{0}, stays_{0};
  std::atomic<uint64_t> visits_{0};   // of drivers, ever
  std::atomic<bool> urgent_{false};   // a driver left work behind
  std::atomic<bool> polling_{false};  // the thread sleeps on sockets: drivers must get it out
  std::atomic<uint32_t> round_{0};    // of a thread that watches
  std::mutex observers_mutex_;        // protects observers_
  std::vector<Told> observers_;
  std::atomic<bool> observed_{false};  // there are any
  std::atomic<ProxyState> state_{ProxyState::kIdle};
  pthread_t thread_{};
};

}  // namespace weft
