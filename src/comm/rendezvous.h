// The server side of the bootstrap: a star with one connection per rank. It serves all-gathers of
// small blobs, at init and whenever ranks must agree. It tells all ranks when a rank leaves, aborts
// or dies.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/handles.h"
#include "src/base/secret.h"
#include "src/comm/frame.h"
#include "src/transport/acceptor.h"

namespace weft {

// Lives on the control thread, from open() until the last rank has gone.
class Rendezvous : public std::enable_shared_from_this<Rendezvous> {
 public:
  // Any thread may call it. From then on ranks that know the secret can join through this process's
  // acceptor.
  static void open(const Secret& secret);

  explicit Rendezvous(const Secret& secret) : secret_(secret) {}

 private:
  struct Member {
    Fd fd;
    FrameSealer sealer;
    FrameReader reader;
    std::string outgoing;
    bool left = false;
  };
  struct Round {
    std::map<int, std::string> blobs;
  };

  void join(Fd connection, int rank, const Session& session);
  void readable(int rank);
  void handle(int rank, Frame frame);
  void remove(int rank, Frame news);
  void broadcast(const Frame& frame);
  void send(int rank, const Frame& frame);
  void send(int rank, const Frame& frame, const Digest& text_digest);
  void flush(int rank);
  void refuse(const std::string& why);

  Secret secret_;
  int nranks_ = 0;  // 0: no rank has sent it yet
  std::string refused_;
  std::vector<Frame> news_;  // ranks that left or failed, for ranks that join late
  std::map<int, Member> members_;
  std::map<uint64_t, Round> rounds_;
};

}  // namespace weft
