// The branches of a tree of rendezvous: see rendezvous.h.
#include <cstring>
#include <thread>

#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/control_channel.h"
#include "src/comm/rendezvous.h"
#include "src/comm/unique_id.h"
#include "src/transport/event_loop.h"

namespace weft {

void Rendezvous::handle_partial(int branch, Frame& frame) {
  if (branch >= 0) return;
  auto round = PartialRound::decode(frame.text);
  if (!round) return refuse("a rendezvous sent what is no part of a gathering");
  for (auto& [rank, blob] : round->blobs) {
    ranks_of_[branch].insert(rank);
    contribute(frame, rank, std::move(blob));
  }
  rounds_[frame.number].type = round->type;
  complete(frame.number);
}

void Rendezvous::handle_root(const Frame& frame) {
  if (frame.type == Frame::kRefused) refused_ = frame.text;
  // Ranks that join late hear it, too.
  if (frame.type != Frame::kGathered && frame.type != Frame::kRefused) news_.push_back(frame);
  broadcast(frame);
}

// Connecting takes time, and this is the control thread.
void Rendezvous::climb(const Frame& frame) {
  UniqueId root;
  if (branch_ranks_ > 0 || frame.value < 1 || frame.text.size() != sizeof root) return;
  std::memcpy(static_cast<void*>(&root), frame.text.data(), sizeof root);
  if (!root.is_sane()) return;
  branch_ranks_ = frame.value;
  const int place = -static_cast<int>(frame.number);
  std::thread([self = shared_from_this(), root, place] {
    const Config config = Config::from_environment();
    Session session;
    try {
      Fd connection = join_rendezvous(root.candidates(host_identity(config)), root.secret, place,
                                      in_seconds(config.init_timeout_s), session, nullptr);
      EventLoop::instance().run([&] { self->climbed(std::move(connection), session); });
    } catch (const Error& error) {
      WEFT_WARN("a rendezvous cannot reach that of the first unique id: {}", error.what());
      EventLoop::instance().run([&] { self->give_up(); });
    }
  }).detach();
}

void Rendezvous::climbed(Fd connection, const Session& session) {
  add(kRoot, std::move(connection), session);
  std::vector<uint64_t> numbers;
  for (const auto& [number, round] : rounds_) numbers.push_back(number);
  for (const uint64_t number : numbers) complete(number);
  for (const Frame& news : news_) send(kRoot, news);
}

// Its ranks notice that their connections close.
void Rendezvous::give_up() {
  for (auto& [key, member] : members_) EventLoop::instance().unwatch(member.fd.get());
  members_.clear();
  Acceptor::instance().stop(secret_, -1);
}

}  // namespace weft
