// See peer_watch.h.
#include "src/comm/peer_watch.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/transport/event_loop.h"
#include "src/transport/socket.h"
#include "src/transport/status_request.h"

namespace weft {
namespace {

// The watches of this process, so that its ranks find the one they share.
struct Watches {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<PeerWatch>> by_key;
  static Watches& instance() {
    static PerProcess<Watches> watches;
    return watches.get();
  }
};

// Becomes readable when the process at the other end of a unix socket ends. Empty for other
// sockets, where the kernel has no such descriptors, and for processes in another pid namespace.
Fd process_behind(int socket) {
  const int pid = socket_peer(socket).pid;
  return pid <= 0 ? Fd() : Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// The peer has not read for long. What is no failure must leave room for what is.
bool is_backed_up(int socket) {
  int queued = 0, room = 0;
  socklen_t size = sizeof room;
  return ioctl(socket, SIOCOUTQ, &queued) == 0 &&
         getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, &size) == 0 && queued > room / 4;
}

}  // namespace

std::vector<size_t> PeerWatch::neighbours(size_t index, size_t count) {
  std::set<size_t> found;
  for (size_t distance = 1; distance < count; distance *= 2) {
    found.insert((index + distance) % count);
    found.insert((index + count - distance) % count);
  }
  return {found.begin(), found.end()};
}

PeerWatch::PeerWatch(const Secret& secret, const std::vector<PeerInfo>& infos, uint64_t own_process)
    : secret_(derive(secret, "watch")), infos_(infos) {
  std::map<uint64_t, size_t> index;
  for (size_t r = 0; r < infos.size(); r++) {
    const auto [it, fresh] = index.emplace(infos[r].process, members_.size());
    if (fresh) members_.emplace_back();
    members_[it->second].ranks.push_back(static_cast<int>(r));
  }
  own_ = index.at(own_process);
}

PeerWatch::~PeerWatch() = default;

std::shared_ptr<PeerWatch> PeerWatch::join(const Secret& secret, int rank,
                                           const std::vector<PeerInfo>& infos, Listener listener) {
  std::shared_ptr<PeerWatch> watch;
  {
    Watches& watches = Watches::instance();
    std::lock_guard lock(watches.mutex);
    std::erase_if(watches.by_key, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<PeerWatch>& entry = watches.by_key[public_key(secret)];
    watch = entry.lock();
    if (watch == nullptr) {
      watch = std::make_shared<PeerWatch>(secret, infos, infos[static_cast<size_t>(rank)].process);
      entry = watch;
      const std::weak_ptr<PeerWatch> weak = watch;
      Acceptor::instance().serve(watch->secret_, watch->members_[watch->own_].ranks.front(),
                                 [weak](Fd connection, const Purpose& purpose, const Session& s) {
                                   const auto self = weak.lock();
                                   if (self == nullptr || purpose.kind != Purpose::kWatch) return;
                                   self->add(self->process_of(purpose.from_rank),
                                             std::move(connection), s);
                                 });
    }
  }
  EventLoop::instance().run([&] { watch->listeners_[rank] = std::move(listener); });
  return watch;
}

size_t PeerWatch::process_of(int rank) const {
  for (size_t p = 0; p < members_.size(); p++)
    if (std::binary_search(members_[p].ranks.begin(), members_[p].ranks.end(), rank)) return p;
  return own_;  // no such rank: add() ignores it
}

std::string PeerWatch::describe(int rank) const {
  if (rank < 0 || static_cast<size_t>(rank) >= infos_.size()) return fmt::format("rank {}", rank);
  const PeerInfo& info = infos_[static_cast<size_t>(rank)];
  return fmt::format("rank {} (host {}, pid {})", rank, info.host_name, info.pid);
}

std::pair<Fd, Session> PeerWatch::dial(const Member& member, Deadline deadline,
                                       const Check& check) const {
  const int first = member.ranks.front();
  const PeerInfo& info = infos_[static_cast<size_t>(first)];
  Purpose purpose;
  purpose.kind = Purpose::kWatch;
  purpose.from_rank = members_[own_].ranks.front();
  purpose.to_rank = first;
  const bool same_host = info.host == infos_[static_cast<size_t>(purpose.from_rank)].host;
  const Cancelled failed = [&] {
    try {
      check();
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  const auto prove = [&](const Fd& fd) {
    return fd ? authenticate(fd.get(), secret_, purpose, std::min(deadline, in_seconds(20)), failed)
              : std::nullopt;
  };
  while (std::chrono::steady_clock::now() < deadline) {
    if (same_host) {
      Fd fd = connect_unix(info.unix_name);
      if (const auto session = prove(fd)) return {std::move(fd), *session};
    }
    for (int a = 0; a < info.address_count; a++) {
      Fd fd = connect_tcp(info.addresses[a], deadline);
      if (const auto session = prove(fd)) return {std::move(fd), *session};
    }
    check();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  fail(ncclSystemError, "{} cannot be reached to watch over it (WEFT_INIT_TIMEOUT)",
       describe(first));
}

void PeerWatch::connect(int rank, Deadline deadline, const Check& check) {
  if (rank != members_[own_].ranks.front()) return;
  for (const size_t process : neighbours(own_, members_.size())) {
    if (process < own_) continue;  // that one connects to this one
    auto dialed = dial(members_[process], deadline, check);
    EventLoop::instance().run([&] { add(process, std::move(dialed.first), dialed.second); });
  }
}

void PeerWatch::add(size_t process, Fd socket, const Session& session) {
  if (process == own_ || links_.count(process) != 0) return;
  Link& link = links_.try_emplace(process, std::move(socket), session).first->second;
  expect_answers(link.socket.get(), Config::from_environment().peer_timeout_s);
  link.process = process_behind(link.socket.get());
  const std::weak_ptr<PeerWatch> weak = weak_from_this();
  const auto call = [weak, process](void (PeerWatch::*what)(size_t)) {
    return [weak, process, what](uint32_t) {
      if (const auto self = weak.lock()) ((*self).*what)(process);
    };
  };
  EventLoop::instance().watch(link.socket.get(), EPOLLIN, call(&PeerWatch::readable));
  if (link.process)
    EventLoop::instance().watch(link.process.get(), EPOLLIN, call(&PeerWatch::ended));
}

void PeerWatch::drop(size_t process) {
  const auto it = links_.find(process);
  if (it == links_.end()) return;
  EventLoop::instance().unwatch(it->second.socket.get());
  if (it->second.process) EventLoop::instance().unwatch(it->second.process.get());
  links_.erase(it);
}

void PeerWatch::readable(size_t process) {
  for (;;) {
    const auto it = links_.find(process);
    if (it == links_.end()) return;
    std::array<char, 4096> buffer;
    const ssize_t got = recv(it->second.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got == 0) return lost(process, "its connection closed without a goodbye");
    if (got < 0)
      return lost(process, fmt::format("its connection broke ({})", std::strerror(errno)));
    it->second.reader.append(buffer.data(), static_cast<size_t>(got));
    Frame frame;
    const auto reader = [&] {  // spread() may drop the link
      const auto found = links_.find(process);
      return found == links_.end() ? nullptr : &found->second.reader;
    };
    while (reader() != nullptr && reader()->next(frame))
      if (const auto news = News::decode(frame.text)) spread(*news, process);
    if (reader() != nullptr && reader()->broken())
      return lost(process, "its connection carried a damaged or forged frame");
  }
}

// What it said before it ended counts first.
void PeerWatch::ended(size_t process) {
  readable(process);
  if (links_.count(process) != 0) lost(process, "its process ended without a goodbye");
}

void PeerWatch::lost(size_t process, const std::string& how) {
  drop(process);
  for (const int rank : members_[process].ranks) {
    if (departed_.count(rank) != 0) continue;
    News news;
    news.kind = News::Kind::kDied;
    news.primary = !failed_;
    news.rank = rank;
    news.reporter = members_[own_].ranks.front();
    news.code = ncclRemoteError;
    news.when_us = wall_clock_us();
    news.text = how;
    spread(news, own_);
  }
}

void PeerWatch::spread(const News& news, size_t from) {
  if (news.kind == News::Kind::kStalls) {  // a rank may send many of these
    int64_t& last = stalls_[news.rank];
    if (news.when_us <= last) return;
    last = news.when_us;
  } else if (!heard_.emplace(news.kind, news.rank, news.reporter).second) {
    return;
  }
  if (news.is_departure()) departed_.insert(news.rank);
  failed_ = failed_ || (news.is_failure() && news.kind != News::Kind::kQuit);
  const Frame frame{Frame::kNews, news.rank, 0, news.encode()};
  std::vector<size_t> broken;
  for (auto& [process, link] : links_) {
    if (process == from) continue;
    if (news.kind == News::Kind::kStalls && is_backed_up(link.socket.get())) continue;
    const std::string bytes = link.sealer.seal(frame);
    // Messages are few and small. A socket that takes none belongs to a process that has stopped
    // for long. readable() finds a broken connection.
    const ssize_t sent =
        send(link.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < static_cast<ssize_t>(bytes.size()) && (sent >= 0 || errno == EAGAIN))
      broken.push_back(process);
  }
  for (const size_t process : broken) lost(process, "it reads no messages");
  std::vector<Listener> listeners;
  for (const auto& [rank, listener] : listeners_)
    if (rank != news.reporter || news.kind == News::Kind::kDied) listeners.push_back(listener);
  for (const Listener& listener : listeners) listener(news);
}

void PeerWatch::tell(const News& news) {
  EventLoop::instance().run([&] { spread(news, own_); });
}

void PeerWatch::leave(int rank) {
  EventLoop::instance().run([&] {
    listeners_.erase(rank);
    if (!listeners_.empty()) return;
    Acceptor::instance().stop(secret_, members_[own_].ranks.front());
    while (!links_.empty()) drop(links_.begin()->first);
  });
}

}  // namespace weft
