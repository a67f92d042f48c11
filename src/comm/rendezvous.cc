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

void Rendezvous::join(Fd connection, int rank, const Session& session) {
  if (members_.count(rank) != 0) {
    const Frame frame{
        Frame::kRefused, rank, 0,
        fmt::format("rank {} joined twice: every rank must have its own number", rank)};
    const std::string bytes = FrameSealer(session.out).seal(frame);
    ::send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return refuse(frame.text);
  }
  expect_answers(connection.get(), Config::from_environment().peer_timeout_s);
  const int fd = connection.get();
  members_.emplace(
      rank, Member{std::move(connection), FrameSealer(session.out), FrameReader(session.in), {}});
  EventLoop::instance().watch(fd, EPOLLIN, [self = shared_from_this(), rank](uint32_t events) {
    if ((events & EPOLLOUT) != 0) self->flush(rank);
    if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) self->readable(rank);
  });
  send(rank, {Frame::kWelcome, rank, Acceptor::instance().token(), {}});
  if (!refused_.empty()) send(rank, {Frame::kRefused, rank, 0, refused_});
  for (const Frame& frame : news_)
    if (frame.type != Frame::kMoved) send(rank, frame);
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
  if (member() != nullptr && member()->reader.broken())
    remove(rank, died(rank, "its control connection carried a damaged or forged frame"));
}

void Rendezvous::handle(int rank, Frame frame) {
  switch (frame.type) {
    case Frame::kGather:
    case Frame::kCollect: {
      if (nranks_ == 0) nranks_ = frame.value;
      if (nranks_ != frame.value)
        return refuse(fmt::format("rank {} says the communicator has {} ranks, others say {}", rank,
                                  frame.value, nranks_));
      Round& round = rounds_[frame.number];
      round.blobs[rank] = std::move(frame.text);
      if (static_cast<int>(round.blobs.size()) < nranks_) return;
      Frame answer{Frame::kGathered, 0, frame.number, {}};
      for (auto& [r, blob] : round.blobs) {
        const uint64_t size = blob.size();
        answer.text.append(reinterpret_cast<const char*>(&size), sizeof size);
        answer.text += blob;
      }
      rounds_.erase(frame.number);
      if (frame.type == Frame::kGather) return broadcast(answer);
      for (int r = 1; r < nranks_; r++) send(r, {Frame::kGathered, 0, frame.number, {}});
      return send(0, answer);
    }
    case Frame::kLeave:
      return remove(rank, {Frame::kLeft, rank, 0, {}});
    case Frame::kAbort:
      return remove(rank, {Frame::kFailed, rank, 0, frame.text});
    case Frame::kMoved:
      return remove(rank, {Frame::kMoved, rank, 0, {}});
    default:
      return;
  }
}

void Rendezvous::remove(int rank, Frame news) {
  const auto it = members_.find(rank);
  if (it == members_.end()) return;
  EventLoop::instance().unwatch(it->second.fd.get());
  members_.erase(it);
  news_.push_back(news);
  if (news.type == Frame::kFailed) WEFT_INFO(kBootstrap, "rendezvous: rank {} failed", rank);
  if (news.type != Frame::kMoved) broadcast(news);
  if (static_cast<int>(news_.size()) == nranks_) Acceptor::instance().stop(secret_, -1);
}

void Rendezvous::refuse(const std::string& why) {
  if (!refused_.empty()) return;
  refused_ = why;
  broadcast({Frame::kRefused, -1, 0, why});
}

void Rendezvous::broadcast(const Frame& frame) {
  const Digest text_digest = frame.text_digest();
  std::vector<int> ranks;
  for (const auto& [rank, member] : members_) ranks.push_back(rank);
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
