// A rank's side of the bootstrap. It joins a rendezvous, takes part in all-gathers, and hears of
// ranks that left or died.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/handles.h"
#include "src/base/secret.h"
#include "src/comm/frame.h"
#include "src/comm/news.h"
#include "src/transport/acceptor.h"
#include "src/transport/address.h"
#include "src/transport/socket.h"

namespace weft {

struct UniqueId;

// Meets a rendezvous as `rank`. Tries the addresses in turn until the deadline, or until
// `cancelled`. Throws Error.
Fd join_rendezvous(const std::vector<Address>& addresses, const Secret& secret, int rank,
                   Deadline deadline, Session& session, const std::function<bool()>& cancelled);

// How the error begins where a gather lacks ranks. It names no rank: several ranks find it out at
// once, and all report the same.
inline constexpr std::string_view kNotAllCame = "not all ranks came to the same call in time";

// One thread at a time calls all_gather(). Any thread may call the other functions. The listener
// runs on the control thread.
class ControlChannel {
 public:
  using Listener = std::function<void(const News&)>;

  // Tries the addresses in turn until the deadline, or until `cancelled`.
  ControlChannel(const std::vector<Address>& addresses, const Secret& secret, int rank, int nranks,
                 Deadline deadline, Listener listener,
                 const std::function<bool()>& cancelled = nullptr);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // Reserves the number of a round of all_gather(). All ranks must reserve in the same order. The
  // gather itself may run later, on another thread.
  uint64_t reserve();
  // One blob per rank, in rank order. Throws when a rank is gone, or at the deadline.
  std::vector<std::string> all_gather(const std::string& blob, Deadline deadline);

  std::vector<std::string> all_gather(uint64_t round, const std::string& blob, Deadline deadline);
  // As all_gather(), but only rank 0 gets the blobs. The other ranks get an empty list. All ranks
  // wait until every rank has come.
  std::vector<std::string> collect(const std::string& blob, Deadline deadline);
  // No gather can succeed any more. check() throws the reason.
  bool broken();
  void check();
  // The token of the process that holds the rendezvous (Acceptor::token()); 0: not known yet.
  uint64_t rendezvous_process() const { return rendezvous_process_.load(); }

  // The rendezvous is branch `place` (from 1 on) of a tree, for so many ranks. Called first.
  void join_branch(const UniqueId& root, int place, int ranks);

  void leave();
  // Leaves for another rendezvous. The other ranks are not told.
  void move_on();
  void abort(const News& why);
  // Ends a waiting all_gather() with this text.
  void interrupt(const std::string& why, ncclResult_t code = ncclRemoteError);
  // After this returns, the listener is never called again.
  void silence();

 private:
  std::string round_trip(const Frame& frame, Deadline deadline);
  std::vector<std::string> split(const std::string& text) const;
  void readable();
  void lose(const std::string& why);
  void handle(Frame& frame);
  void say(const Frame& frame);
  // Says it, unless this rank has said its last word. Errors do not matter then.
  void close(const Frame& last_word);

  const int rank_, nranks_;
  Session session_;
  Fd fd_;
  Listener listener_;
  FrameReader reader_;  // control thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t round_ = 0;
  std::map<uint64_t, std::string> gathered_;
  std::string broken_;
  ncclResult_t code_ = ncclRemoteError;  // goes with it
  std::mutex say_mutex_;                 // protects sealer_ and the order of frames
  FrameSealer sealer_;
  std::atomic<uint64_t> rendezvous_process_{0};
  bool closed_ = false;
};

}  // namespace weft
