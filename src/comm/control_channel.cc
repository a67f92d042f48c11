// See control_channel.h.
#include "src/comm/control_channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <thread>

#include "src/base/config.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/blobs.h"
#include "src/comm/unique_id.h"
#include "src/transport/acceptor.h"
#include "src/transport/event_loop.h"

namespace weft {

Fd join_rendezvous(const std::vector<Address>& addresses, const Secret& secret, int rank,
                   Deadline deadline, Session& session, const std::function<bool()>& cancelled) {
  Purpose purpose;
  purpose.kind = Purpose::kRendezvous;
  purpose.from_rank = rank;
  auto pause = std::chrono::milliseconds(1);
  auto complain = in_seconds(10);
  while (std::chrono::steady_clock::now() < deadline) {
    std::string why;
    for (const Address& address : addresses) {
      if (cancelled && cancelled()) fail(ncclInvalidUsage, "rank {} aborted its init", rank);
      Fd fd = connect_tcp(address, deadline);
      if (!fd) continue;
      const auto met = authenticate(fd.get(), secret, purpose, std::min(deadline, in_seconds(20)),
                                    cancelled, &why);
      if (!met) continue;
      session = *met;
      return fd;
    }
    if (!why.empty()) fail(ncclInvalidUsage, "rank {}: {}", rank, why);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
    if (std::chrono::steady_clock::now() > complain) {
      WEFT_WARN("rank {}: the rendezvous at {} does not answer yet", rank,
                describe(addresses.front()));
      complain = in_seconds(30);
    }
  }
  std::string tried;
  for (const Address& address : addresses) tried += (tried.empty() ? "" : ", ") + describe(address);
  fail(ncclSystemError,
       "rank {} could not reach the rendezvous at {} (WEFT_INIT_TIMEOUT): is the process that made "
       "the unique id still "
       "running, and is the interface reachable (NCCL_SOCKET_IFNAME)?",
       rank, tried);
}

ControlChannel::ControlChannel(const std::vector<Address>& addresses, const Secret& secret,
                               int rank, int nranks, Deadline deadline, Listener listener,
                               const std::function<bool()>& cancelled)
    : rank_(rank),
      nranks_(nranks),
      fd_(join_rendezvous(addresses, secret, rank, deadline, session_, cancelled)),
      listener_(std::move(listener)),
      reader_(session_.in),
      sealer_(session_.out) {
  expect_answers(fd_.get(), Config::from_environment().peer_timeout_s);
  EventLoop::instance().watch(fd_.get(), EPOLLIN, [this](uint32_t) { readable(); });
}

ControlChannel::~ControlChannel() { silence(); }

void ControlChannel::silence() {
  if (fd_) EventLoop::instance().unwatch(fd_.get());
}

void ControlChannel::say(const Frame& frame) {
  std::lock_guard lock(say_mutex_);
  const std::string bytes = sealer_.seal(frame);
  send_all(fd_.get(), std::as_bytes(std::span(bytes.data(), bytes.size())), in_seconds(10));
}

void ControlChannel::join_branch(const UniqueId& root, int place, int ranks) {
  say({Frame::kBranch, ranks, static_cast<uint64_t>(place),
       std::string(reinterpret_cast<const char*>(&root), sizeof root)});
}

uint64_t ControlChannel::reserve() {
  std::lock_guard lock(mutex_);
  return round_++;
}

bool ControlChannel::broken() {
  std::lock_guard lock(mutex_);
  return !broken_.empty();
}

void ControlChannel::check() {
  std::lock_guard lock(mutex_);
  if (!broken_.empty()) throw Error(code_, broken_);
}

std::vector<std::string> ControlChannel::all_gather(const std::string& blob, Deadline deadline) {
  return all_gather(reserve(), blob, deadline);
}

std::vector<std::string> ControlChannel::all_gather(uint64_t round, const std::string& blob,
                                                    Deadline deadline) {
  return split(round_trip({Frame::kGather, nranks_, round, blob}, deadline));
}

std::vector<std::string> ControlChannel::collect(const std::string& blob, Deadline deadline) {
  const std::string text = round_trip({Frame::kCollect, nranks_, reserve(), blob}, deadline);
  return rank_ == 0 ? split(text) : std::vector<std::string>();
}

std::string ControlChannel::round_trip(const Frame& frame, Deadline deadline) {
  check();
  say(frame);
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline,
                           [&] { return gathered_.count(frame.number) != 0 || !broken_.empty(); }))
    fail(ncclSystemError, "{}: {} are needed (WEFT_INIT_TIMEOUT)", kNotAllCame, nranks_);
  const auto it = gathered_.find(frame.number);
  if (it == gathered_.end()) throw Error(code_, broken_);
  std::string text = std::move(it->second);
  gathered_.erase(it);
  return text;
}

std::vector<std::string> ControlChannel::split(const std::string& text) const {
  auto blobs = split_blobs(text);
  if (!blobs || static_cast<int>(blobs->size()) != nranks_)
    fail(ncclInternalError, "the rendezvous answered with {} entries for {} ranks",
         blobs ? blobs->size() : 0, nranks_);
  return std::move(*blobs);
}

void ControlChannel::interrupt(const std::string& why, ncclResult_t code) {
  std::lock_guard lock(mutex_);
  if (broken_.empty()) {
    broken_ = why;
    code_ = code;
  }
  changed_.notify_all();
}

void ControlChannel::readable() {
  std::array<char, 65536> buffer;
  const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return lose("the process that holds the rendezvous is gone");
  reader_.append(buffer.data(), static_cast<size_t>(got));
  Frame frame;
  while (reader_.next(frame)) handle(frame);
  if (reader_.broken()) lose("the connection to the rendezvous carried a damaged or forged frame");
}

void ControlChannel::lose(const std::string& why) {
  EventLoop::instance().unwatch(fd_.get());
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
  }
  interrupt(why);
}

void ControlChannel::handle(Frame& frame) {
  switch (frame.type) {
    case Frame::kGathered: {
      std::lock_guard lock(mutex_);
      gathered_[frame.number] = std::move(frame.text);
      changed_.notify_all();
      return;
    }
    case Frame::kWelcome:
      rendezvous_process_ = frame.number;
      return;
    case Frame::kLeft:
      interrupt(fmt::format("rank {} has left the communicator", frame.value));
      return listener_({News::Kind::kLeft, true, frame.value, frame.value, ncclSuccess, 0, ""});
    case Frame::kFailed: {
      const auto news = News::decode(frame.text);
      if (!news) return;
      interrupt(news->kind == News::Kind::kDied
                    ? fmt::format("rank {} died: {}", news->rank, news->text)
                    : news->text,
                news->code);
      return listener_(*news);
    }
    case Frame::kRefused:
      return interrupt(frame.text, ncclInvalidUsage);
    default:
      return;
  }
}

void ControlChannel::close(const Frame& last_word) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  try {
    say(last_word);
  } catch (const Error&) {
    // The rendezvous is gone already, so there is nobody to tell.
  }
}

void ControlChannel::leave() { close({Frame::kLeave, rank_, 0, {}}); }

void ControlChannel::move_on() { close({Frame::kMoved, rank_, 0, {}}); }

void ControlChannel::abort(const News& why) {
  interrupt(why.text);
  close({Frame::kAbort, rank_, 0, why.encode()});
}

}  // namespace weft
