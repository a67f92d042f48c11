// See mesh.h.
#include "src/comm/mesh.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/transport/acceptor.h"
#include "src/transport/event_loop.h"

namespace weft {
namespace {

constexpr uint32_t kLibraryVersion = 1;  // of what ranks say to each other

// Arenas of this process's ranks, by communicator and rank, for siblings to find.
class LocalArenas {
 public:
  static LocalArenas& instance() {
    static LocalArenas& arenas =
        *std::make_unique<LocalArenas>().release();  // exit handlers may need it
    return arenas;
  }
  void publish(uint64_t key, int rank, const std::shared_ptr<Arena>& arena) {
    std::lock_guard lock(mutex_);
    arenas_[{key, rank}] = arena;
  }
  std::shared_ptr<Arena> find(uint64_t key, int rank) {
    std::lock_guard lock(mutex_);
    const auto it = arenas_.find({key, rank});
    return it == arenas_.end() ? nullptr : it->second.lock();
  }
  void forget(uint64_t key, int rank) {
    std::lock_guard lock(mutex_);
    arenas_.erase({key, rank});
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int>, std::weak_ptr<Arena>> arenas_;
};

// Rings shrink as ranks grow, so that a communicator's memory stays bounded. All ranks compute the
// same. However small the user wants them, four messages of a chunk for every rank fit.
uint64_t ring_size(const Config& config, int nranks) {
  const auto n = static_cast<uint64_t>(nranks);
  const uint64_t usual = uint64_t{32} << 10, share = (uint64_t{4} << 20) / std::max<uint64_t>(n, 8);
  const uint64_t least = std::min(usual, 4 * kFifoAlign * (n + 1));
  return std::max(least, std::min<uint64_t>(config.ring_bytes, std::max(usual, share))) / 64 * 64;
}

int most_channels(int collective) {
  return std::max(kChannels, collective + kChannels - kCollectiveChannels);
}

}  // namespace

int Mesh::channels(int source, int destination) const {
  return most_channels(imported_.channels(source, destination));
}

Mesh::Mesh(ControlChannel& control, const Secret& secret, int rank, int nranks,
           const Config& config, const ImportedSchedules& imported, Deadline deadline,
           std::atomic<bool>* gone)
    : secret_(secret),
      rank_(rank),
      nranks_(nranks),
      imported_(imported),
      channels_(most_channels(imported.most_channels())),
      ring_bytes_(ring_size(config, nranks)) {
  exchange(control, config, deadline);
  classify();
  const bool shareable =
      std::find(reach_.begin(), reach_.end(), Reach::kSharedMemory) != reach_.end();
  arena_ = std::make_shared<Arena>(layout(), shareable);
  server_ = std::make_unique<MemoryServer>(arena_);
  LocalArenas::instance().publish(public_key(secret_), rank_, arena_);
  const auto ports = static_cast<size_t>(nranks_ * channels_);
  sends_.resize(ports);
  receives_.resize(ports);
  incoming_.resize(ports);
  peer_arenas_.resize(static_cast<size_t>(nranks_));
  links_.resize(static_cast<size_t>(nranks_));
  for (int peer = 0; peer < nranks_; peer++)
    missing_ += reach(peer) == Reach::kTcp ? channels(peer, rank_) : 0;
  Acceptor::instance().serve(secret_, rank_, [this](Fd connection, const Purpose& purpose) {
    accept(std::move(connection), purpose);
  });
  try {
    control.all_gather("ready", deadline);  // everyone can be reached now
    for (const int peer : local_)
      if (reach_[static_cast<size_t>(peer)] != Reach::kTcp) connect_local(peer, deadline);
    connect_tcp_peers(control, deadline, gone);
    control.all_gather("connected", deadline);
  } catch (...) {
    Acceptor::instance().stop(secret_, rank_);
    drain(0);
    LocalArenas::instance().forget(public_key(secret_), rank_);
    throw;
  }
}

Mesh::~Mesh() {
  Acceptor::instance().stop(secret_, rank_);
  drain(0);
  LocalArenas::instance().forget(public_key(secret_), rank_);
}

void Mesh::exchange(ControlChannel& control, const Config& config, Deadline deadline) {
  PeerInfo mine;
  mine.version = kLibraryVersion;
  mine.pid = getpid();
  mine.host = host_identity(config);
  mine.process = Acceptor::instance().token();
  mine.ring_bytes = ring_bytes_;
  mine.slice_bytes = config.slice_bytes;
  mine.plan = siphash(Secret{}, config.plan.data(), config.plan.size());
  mine.schedules = imported_.fingerprint();
  mine.shm_disable = config.shm_disable ? 1 : 0;
  const auto addresses = local_addresses(config, Acceptor::instance().port());
  mine.address_count = static_cast<int32_t>(std::min<size_t>(addresses.size(), 4));
  std::copy_n(addresses.begin(), mine.address_count, mine.addresses);
  std::strncpy(mine.unix_name, Acceptor::instance().unix_name().c_str(), sizeof mine.unix_name - 1);

  const std::string blob(reinterpret_cast<const char*>(&mine), sizeof mine);
  for (const std::string& text : control.all_gather(blob, deadline)) {
    PeerInfo& info = infos_.emplace_back();
    const auto peer = static_cast<int>(infos_.size()) - 1;
    if (text.size() != sizeof info)
      fail(ncclInvalidUsage, "rank {} runs another version of this library than rank {}", peer,
           rank_);
    std::memcpy(&info, text.data(), sizeof info);
    if (info.version != mine.version)
      fail(ncclInvalidUsage, "rank {} runs another version of this library than rank {}", peer,
           rank_);
    if (info.plan != mine.plan)
      fail(ncclInvalidUsage, "rank {} has another WEFT_PLAN than rank {}", peer, rank_);
    if (info.schedules != mine.schedules)
      fail(ncclInvalidUsage,
           "rank {} has other schedules than rank {} (WEFT_SCHEDULES, MSCCL_XML_FILES, "
           "MSCCL_ALGO_DIR): files and their order must be the same on all ranks",
           peer, rank_);
    if (info.ring_bytes != mine.ring_bytes || info.slice_bytes != mine.slice_bytes)
      fail(ncclInvalidUsage,
           "rank {} has other values of WEFT_RING_BYTES or WEFT_SLICE_BYTES than rank {}: {}/{} "
           "and {}/{}",
           peer, rank_, info.ring_bytes, info.slice_bytes, mine.ring_bytes, mine.slice_bytes);
  }
}

void Mesh::classify() {
  const PeerInfo& mine = info(rank_);
  for (int peer = 0; peer < nranks_; peer++) {
    const PeerInfo& theirs = info(peer);
    Reach reach = Reach::kTcp;
    if (theirs.host == mine.host) local_.push_back(peer);
    if (peer == rank_) {
      reach = Reach::kSelf;
    } else if (theirs.process == mine.process) {
      reach = Reach::kProcess;
    } else if (theirs.host == mine.host && theirs.shm_disable == 0 && mine.shm_disable == 0) {
      reach = Reach::kSharedMemory;
    }
    reach_.push_back(reach);
    one_host_ = one_host_ && theirs.host == info(0).host;
    one_process_ = one_process_ && theirs.process == info(0).process;
  }
}

void Mesh::connect_local(int peer, Deadline deadline) {
  const auto p = static_cast<size_t>(peer);
  const auto position = [&](int rank) {
    return static_cast<int>(std::lower_bound(local_.begin(), local_.end(), rank) - local_.begin());
  };
  Lending lending = Lending::kPointer;
  if (reach(peer) == Reach::kSelf) {
    peer_arenas_[p] = arena_;
  } else if (reach(peer) == Reach::kProcess) {
    peer_arenas_[p] = LocalArenas::instance().find(public_key(secret_), peer);
    if (peer_arenas_[p] == nullptr)
      fail(ncclInternalError, "rank {} of this process has no arena", peer);
  } else {
    links_[p] = std::make_unique<MemoryLink>(info(peer).unix_name, secret_, rank_, peer, deadline);
    peer_arenas_[p] = links_[p]->fetch_arena(layout(), deadline);
    lending = Lending::kSegment;
  }
  for (int channel = 0; channel < channels_; channel++) {
    SendPort& out = sends_[index(peer, channel)];
    out = send_port(*peer_arenas_[p], position(rank_), channel, peer);
    out.lending = lending;
    RecvPort& in = receives_[index(peer, channel)];
    in = receive_port(*arena_, *peer_arenas_[p], position(peer), channel, peer);
    in.segments = links_[p].get();
  }
}

// Control thread.
void Mesh::accept(Fd connection, const Purpose& purpose) {
  if (purpose.kind == Purpose::kMemory) return server_->add(std::move(connection));
  if (purpose.kind != Purpose::kStream || purpose.from_rank < 0 || purpose.from_rank >= nranks_ ||
      purpose.channel >= static_cast<uint32_t>(channels(purpose.from_rank, rank_)))
    return;
  std::lock_guard lock(mutex_);
  Fd& slot = incoming_[index(purpose.from_rank, static_cast<int>(purpose.channel))];
  if (!slot) missing_--;
  slot = std::move(connection);
  arrived_.notify_all();
}

Fd Mesh::open_stream(ControlChannel& control, int peer, int channel, Deadline deadline) {
  const PeerInfo& theirs = info(peer);
  Purpose purpose;
  purpose.kind = Purpose::kStream;
  purpose.from_rank = rank_;
  purpose.to_rank = peer;
  purpose.channel = static_cast<uint32_t>(channel);
  while (std::chrono::steady_clock::now() < deadline) {
    for (int a = 0; a < theirs.address_count; a++) {
      Fd fd = connect_tcp(theirs.addresses[a], deadline);
      if (fd && authenticate(fd.get(), secret_, purpose, std::min(deadline, in_seconds(20))))
        return fd;
    }
    control.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  fail(ncclSystemError,
       "rank {} cannot connect to rank {} at {} (NCCL_SOCKET_IFNAME chooses the interface)", rank_,
       peer, describe(theirs.addresses[0]));
}

void Mesh::connect_tcp_peers(ControlChannel& control, Deadline deadline, std::atomic<bool>* gone) {
  for (int k = 1; k < nranks_; k++) {
    const int peer = (rank_ + k) % nranks_;
    if (reach(peer) != Reach::kTcp) continue;
    for (int channel = 0; channel < channels(rank_, peer); channel++) {
      auto stream = std::make_shared<TcpStream>(open_stream(control, peer, channel, deadline),
                                                ring_bytes_, true, door());
      sends_[index(peer, channel)] = send_port(*stream, peer);
      stream->lost = &gone[peer];
      streams_.push_back(std::move(stream));
    }
  }
  std::unique_lock lock(mutex_);
  while (missing_ > 0) {
    arrived_.wait_for(lock, std::chrono::milliseconds(50));
    control.check();  // a rank that failed will never connect
    if (missing_ > 0 && std::chrono::steady_clock::now() > deadline)
      fail(ncclSystemError,
           "rank {}: {} connections from other hosts are missing (WEFT_INIT_TIMEOUT)", rank_,
           missing_);
  }
  for (int peer = 0; peer < nranks_; peer++) {
    if (reach(peer) != Reach::kTcp) continue;
    for (int channel = 0; channel < channels(peer, rank_); channel++) {
      auto stream = std::make_shared<TcpStream>(std::move(incoming_[index(peer, channel)]),
                                                ring_bytes_, false, door());
      receives_[index(peer, channel)] = receive_port(*stream, peer);
      stream->lost = &gone[peer];
      streams_.push_back(std::move(stream));
    }
  }
  for (const auto& stream : streams_) TcpProxy::instance().add(stream);
}

void Mesh::drain(double seconds) {
  for (const auto& stream : streams_) TcpProxy::instance().remove(stream, seconds);
  streams_.clear();
}

}  // namespace weft
