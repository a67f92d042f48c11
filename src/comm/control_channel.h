// A rank's side of the bootstrap: joins a rendezvous, takes part in all-gathers, hears of ranks
// that are gone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/handles.h"
#include "src/base/siphash.h"
#include "src/comm/frame.h"
#include "src/transport/address.h"
#include "src/transport/socket.h"

namespace weft {

// all_gather() is called by one thread at a time; everything else by any thread. The listener runs
// on the control thread.
class ControlChannel {
 public:
  // `failed`: the rank died or aborted; otherwise it left in good order. rank < 0: the rendezvous
  // itself is lost.
  using Listener = std::function<void(int rank, bool failed, const std::string& why)>;

  // Tries the addresses in turn until the deadline.
  ControlChannel(const std::vector<Address>& addresses, const Secret& secret, int rank, int nranks,
                 Deadline deadline, Listener listener);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // Rounds are numbered when they are reserved: who reserves in the caller's order may gather on
  // another thread later.
  uint64_t reserve();
  // One blob per rank, in rank order. Throws when a rank is gone, or at the deadline, naming who is
  // missing if known.
  std::vector<std::string> all_gather(const std::string& blob, Deadline deadline);

  std::vector<std::string> all_gather(uint64_t round, const std::string& blob, Deadline deadline);
  // The same for rank 0 alone; the others get nothing, when all have come.
  std::vector<std::string> collect(const std::string& blob, Deadline deadline);
  // Throws if no gather can succeed any more.
  void check();
  // The process that holds the rendezvous (Acceptor::token()); 0 until it has said so.
  uint64_t rendezvous_process() const { return rendezvous_process_.load(); }

  void leave();
  void abort(const std::string& why);
  // Ends a waiting all_gather() with this text.
  void interrupt(const std::string& why);
  // When this returns the listener has been called for the last time.
  void silence();

 private:
  std::string round_trip(const Frame& frame, Deadline deadline);
  std::vector<std::string> split(const std::string& text) const;
  void readable();
  void handle(Frame& frame);
  void say(const Frame& frame);

  const int rank_, nranks_;
  Fd fd_;
  Listener listener_;
  FrameReader reader_;  // control thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t round_ = 0;
  std::map<uint64_t, std::string> gathered_;
  std::string broken_;
  std::mutex say_mutex_;
  std::atomic<uint64_t> rendezvous_process_{0};
  bool closed_ = false;
};

}  // namespace weft
