// The server side of the bootstrap: a star with one connection per rank. It serves all-gathers of
// small blobs, at init and whenever ranks must agree. It tells all ranks when a rank leaves, aborts
// or dies. With several unique ids it is a tree: the first id is the root, the others are branches.
// A branch gathers for its ranks, passes on what it has, and tells them what it hears.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/base/handles.h"
#include "src/base/secret.h"
#include "src/comm/blobs.h"
#include "src/comm/frame.h"
#include "src/transport/acceptor.h"

namespace weft {

// Lives on the control thread, from open() until the last rank has gone.
class Rendezvous : public std::enable_shared_from_this<Rendezvous> {
 public:
  // Any thread may call it. From then on ranks that know the secret can join through this process's
  // acceptor.
  static void open(const Secret& secret);
  // Nobody will join it.
  static void close(const Secret& secret);

  explicit Rendezvous(const Secret& secret) : secret_(secret) {}

 private:
  struct Member {
    Fd fd;
    FrameSealer sealer;
    FrameReader reader;
    std::string outgoing;
    bool left = false;
  };
  // Keys of members_: ranks, branches (-1 and below), and the root.
  static constexpr int kRoot = std::numeric_limits<int>::max();

  void join(Fd connection, int rank, const Session& session);
  void readable(int rank);
  void handle(int from, Frame frame);
  void remove(int from, Frame news);
  // A rank of this rendezvous, or of a branch, has gone.
  void note(int rank, const Frame& news, int heard_from);
  // To all ranks and branches but one.
  void broadcast(const Frame& frame, int except = kRoot);
  void contribute(Frame& frame, int rank, std::string blob);
  void complete(uint64_t number);
  void handle_partial(int branch, Frame& frame);
  void handle_root(const Frame& frame);
  // On the branch: meets the root, then passes on what it has.
  void climb(const Frame& frame);
  void climbed(Fd connection, const Session& session);
  void give_up();
  void add(int key, Fd connection, const Session& session);
  void send(int rank, const Frame& frame);
  void send(int rank, const Frame& frame, const Digest& text_digest);
  void flush(int rank);
  void refuse(const std::string& why);

  Secret secret_;
  int nranks_ = 0;  // 0: no rank has sent it yet
  std::string refused_;
  int branch_ranks_ = 0;                   // 0: it is the root
  int departed_ = 0;                       // ranks, of its own or of branches
  std::map<int, std::set<int>> ranks_of_;  // of branches; those that have not gone
  std::vector<Frame> news_;                // ranks that left or failed, for ranks that join late
  std::map<int, Member> members_;
  std::map<uint64_t, PartialRound> rounds_;
};

// A rendezvous of this process that nobody has joined yet. Closes it unless somebody will.
class HeldRendezvous {
 public:
  explicit HeldRendezvous(const Secret& secret) : secret_(secret) {}
  ~HeldRendezvous() {
    if (held_) Rendezvous::close(secret_);
  }
  HeldRendezvous(const HeldRendezvous&) = delete;
  HeldRendezvous& operator=(const HeldRendezvous&) = delete;

  // This process joins it now. It closes when the last rank has gone.
  void hand_over() { held_ = false; }

 private:
  const Secret secret_;
  bool held_ = true;
};

}  // namespace weft
