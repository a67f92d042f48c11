// Finds out which ranks of a communicator have died, and carries news between its processes. There
// is no centre: every process has connections to a few others (at distances 1, 2, 4, ...) and
// passes on what it hears for the first time. On one host the kernel also tells when a process has
// ended, even if a child that it forked holds its connections.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "src/base/handles.h"
#include "src/base/secret.h"
#include "src/comm/frame.h"
#include "src/comm/news.h"
#include "src/comm/peer_info.h"
#include "src/transport/acceptor.h"

namespace weft {

// One per communicator and process; its ranks share it. Thread-safe.
class PeerWatch : public std::enable_shared_from_this<PeerWatch> {
 public:
  // Runs on the control thread.
  using Listener = std::function<void(const News&)>;

  // `infos`: of all ranks. From now on other processes can connect to this one.
  static std::shared_ptr<PeerWatch> join(const Secret& secret, int rank,
                                         const std::vector<PeerInfo>& infos, Listener listener);
  // Connects to other processes. All ranks must have joined. Blocking; throws Error. `check` throws
  // if a rank has failed meanwhile: nobody would answer there.
  using Check = std::function<void()>;
  void connect(int rank, Deadline deadline, const Check& check);
  // Tells all other ranks. When this returns, the kernel has the messages.
  void tell(const News& news);
  // After this returns, the rank's listener is never called again.
  void leave(int rank);

  // "rank 3 (host node7, pid 1234)".
  std::string describe(int rank) const;

  PeerWatch(const Secret& secret, const std::vector<PeerInfo>& infos, uint64_t own_process);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // The processes that process `index` of `count` has connections to, ascending.
  static std::vector<size_t> neighbours(size_t index, size_t count);

 private:
  struct Member {            // a process
    std::vector<int> ranks;  // ascending
  };
  struct Link {
    Link(Fd connection, const Session& session)
        : socket(std::move(connection)), sealer(session.out), reader(session.in) {}
    Fd socket, process;  // `process` becomes readable when the process ends; may be empty
    FrameSealer sealer;
    FrameReader reader;
  };

  void add(size_t process, Fd socket, const Session& session);
  void readable(size_t process);
  void ended(size_t process);
  void lost(size_t process, const std::string& how);
  void drop(size_t process);
  // Control thread. `from`: the process that sent it; own_ if a rank of this process did.
  void spread(const News& news, size_t from);
  size_t process_of(int rank) const;
  std::pair<Fd, Session> dial(const Member& member, Deadline deadline, const Check& check) const;

  const Secret secret_;
  const std::vector<PeerInfo> infos_;
  std::vector<Member> members_;  // in order of their first ranks
  size_t own_ = 0;
  // Control thread only.
  std::map<size_t, Link> links_;  // by process
  std::map<int, Listener> listeners_;
  std::set<int> departed_;
  std::set<std::tuple<News::Kind, int, int>> heard_;  // with rank and reporter
  std::map<int, int64_t> stalls_;                     // per rank: the time of its last report
  bool failed_ = false;
};

}  // namespace weft
