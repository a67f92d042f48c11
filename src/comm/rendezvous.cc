// See rendezvous.h.
#include "src/comm/rendezvous.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/news.h"
#include "src/transport/acceptor.h"
#include "src/transport/event_loop.h"
#include "src/transport/socket.h"

namespace weft {
namespace {

Frame died(int rank, const std::string& how) {
  News news;
  news.kind = News::Kind::kDied;
  news.rank = rank;
  news.code = ncclRemoteError;
  news.when_us = wall_clock_us();
  news.text = how;
  return {Frame::kFailed, rank, 0, news.encode()};
}

}  // namespace

void Rendezvous::open(const Secret& secret) {
  auto rendezvous = std::make_shared<Rendezvous>(secret);
  Acceptor::instance().serve(
      secret, -1, [rendezvous](Fd connection, const Purpose& purpose, const Session& session) {
        if (purpose.kind == Purpose::kRendezvous)
          rendezvous->join(std::move(connection), purpose.from_rank, session);
      });
}

void Rendezvous::close(const Secret& secret) { Acceptor::instance().stop(secret, -1); }

void Rendezvous::join(Fd connection, int rank, const Session& session) {
  if (members_.count(rank) != 0) {
    const Frame frame{
        Frame::kRefused, rank, 0,
        fmt::format("rank {} joined twice: every rank must have its own number", rank)};
    const std::string bytes = FrameSealer(session.out).seal(frame);
    ::send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return refuse(frame.text);
  }
  add(rank, std::move(connection), session);
  send(rank, {Frame::kWelcome, rank, Acceptor::instance().token(), {}});
  if (!refused_.empty()) send(rank, {Frame::kRefused, rank, 0, refused_});
  for (const Frame& frame : news_)
    if (frame.type != Frame::kMoved) send(rank, frame);
}

void Rendezvous::add(int key, Fd connection, const Session& session) {
  expect_answers(connection.get(), Config::from_environment().peer_timeout_s);
  const int fd = connection.get();
  members_.emplace(
      key, Member{std::move(connection), FrameSealer(session.out), FrameReader(session.in), {}});
  EventLoop::instance().watch(fd, EPOLLIN, [self = shared_from_this(), key](uint32_t events) {
    if ((events & EPOLLOUT) != 0) self->flush(key);
    if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) self->readable(key);
  });
}

void Rendezvous::readable(int rank) {
  const auto it = members_.find(rank);
  if (it == members_.end()) return;
  std::array<char, 65536> buffer;
  const ssize_t got = recv(it->second.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return remove(rank, died(rank, "its connection closed without a goodbye"));
  it->second.reader.append(buffer.data(), static_cast<size_t>(got));
  Frame frame;
  const auto member = [&] {  // handle() may remove it
    const auto found = members_.find(rank);
    return found == members_.end() ? nullptr : &found->second;
  };
  while (member() != nullptr && member()->reader.next(frame)) handle(rank, std::move(frame));
  if (member() != nullptr && member()->reader.broken()) {
    const Frame news = died(rank, "its control connection carried a damaged or forged frame");
    send(rank, news);  // it lives, and reads what the others read
    remove(rank, news);
  }
}

void Rendezvous::handle(int from, Frame frame) {
  if (from == kRoot) return handle_root(frame);
  switch (frame.type) {
    case Frame::kGather:
    case Frame::kCollect:
      contribute(frame, from, std::move(frame.text));
      return complete(frame.number);
    case Frame::kPartial:
      return handle_partial(from, frame);
    case Frame::kBranch:
      return climb(frame);
    case Frame::kLeave:
      return remove(from, {Frame::kLeft, from, 0, {}});
    case Frame::kAbort:
      return remove(from, {Frame::kFailed, from, 0, frame.text});
    case Frame::kMoved:
      if (from < 0) return note(frame.value, frame, from);
      return remove(from, {Frame::kMoved, from, 0, {}});
    case Frame::kLeft:
    case Frame::kFailed:
      if (from < 0) note(frame.value, frame, from);
      return;
    default:
      return;
  }
}

void Rendezvous::contribute(Frame& frame, int rank, std::string blob) {
  if (nranks_ == 0) nranks_ = frame.value;
  if (nranks_ != frame.value)
    return refuse(fmt::format("rank {} says the communicator has {} ranks, others say {}", rank,
                              frame.value, nranks_));
  PartialRound& round = rounds_[frame.number];
  if (frame.type != Frame::kPartial) round.type = frame.type;
  round.blobs[rank] = std::move(blob);
}

void Rendezvous::complete(uint64_t number) {
  const auto it = rounds_.find(number);
  if (it == rounds_.end()) return;
  const bool is_branch = branch_ranks_ > 0;
  if (static_cast<int>(it->second.blobs.size()) < (is_branch ? branch_ranks_ : nranks_)) return;
  if (is_branch && members_.count(kRoot) == 0) return;  // climbed() comes back to it
  const PartialRound round = std::move(it->second);
  rounds_.erase(it);
  if (is_branch) return send(kRoot, {Frame::kPartial, nranks_, number, round.encode()});
  Frame answer{Frame::kGathered, 0, number, {}};
  for (const auto& [r, blob] : round.blobs) append_blob(answer.text, blob);
  if (round.type == Frame::kGather) return broadcast(answer);
  broadcast({Frame::kGathered, 0, number, {}}, 0);
  send(0, answer);
}

void Rendezvous::remove(int from, Frame news) {
  const auto it = members_.find(from);
  if (it == members_.end()) return;
  EventLoop::instance().unwatch(it->second.fd.get());
  members_.erase(it);
  if (from == kRoot) return give_up();
  if (from >= 0) return note(from, news, from);
  // A branch ends when its ranks have gone, unless its process has died.
  for (const int rank : std::set<int>(ranks_of_[from]))
    note(rank, died(rank, "the process that held its rendezvous ended"), from);
}

void Rendezvous::note(int rank, const Frame& news, int heard_from) {
  news_.push_back(news);
  departed_++;
  if (heard_from < 0) ranks_of_[heard_from].erase(rank);
  if (news.type == Frame::kFailed) WEFT_INFO(kBootstrap, "rendezvous: rank {} failed", rank);
  if (news.type != Frame::kMoved) broadcast(news, heard_from);
  if (branch_ranks_ > 0) send(kRoot, news);
  if (departed_ != (branch_ranks_ > 0 ? branch_ranks_ : nranks_)) return;
  Acceptor::instance().stop(secret_, -1);
  if (const auto root = members_.find(kRoot); root != members_.end()) {
    EventLoop::instance().unwatch(root->second.fd.get());
    members_.erase(root);
  }
}

void Rendezvous::refuse(const std::string& why) {
  if (!refused_.empty()) return;
  refused_ = why;
  broadcast({Frame::kRefused, -1, 0, why});
}

void Rendezvous::broadcast(const Frame& frame, int except) {
  const Digest text_digest = frame.text_digest();
  std::vector<int> ranks;
  for (const auto& [key, member] : members_)
    if (key != kRoot && key != except) ranks.push_back(key);
  for (const int rank : ranks) send(rank, frame, text_digest);
}

void Rendezvous::send(int rank, const Frame& frame) { send(rank, frame, frame.text_digest()); }

void Rendezvous::send(int rank, const Frame& frame, const Digest& text_digest) {
  const auto it = members_.find(rank);
  if (it == members_.end()) return;
  it->second.outgoing += it->second.sealer.seal(frame, text_digest);
  flush(rank);
}

void Rendezvous::flush(int rank) {
  const auto it = members_.find(rank);
  if (it == members_.end()) return;
  Member& member = it->second;
  while (!member.outgoing.empty()) {
    const ssize_t sent = ::send(member.fd.get(), member.outgoing.data(), member.outgoing.size(),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) break;  // the socket is full, or broken; readable() finds a broken one
    member.outgoing.erase(0, static_cast<size_t>(sent));
  }
  EventLoop::instance().change(member.fd.get(),
                               member.outgoing.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

}  // namespace weft
