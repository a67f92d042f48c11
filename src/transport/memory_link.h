// Sharing memory between processes of a host: descriptors go over an authenticated unix socket.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/siphash.h"
#include "src/transport/acceptor.h"
#include "src/transport/arena.h"
#include "src/transport/fifo.h"

namespace weft {

// The client's side: one connection to one rank of another process, open as long as the
// communicator. The lanes of this rank may call map(); calls are serialized.
class MemoryLink : public SegmentMapper {
 public:
  // Both wait for the peer until the deadline, or until `cancelled`.
  MemoryLink(const std::string& unix_name, const Secret& secret, int my_rank, int peer_rank,
             Deadline deadline, const Cancelled& cancelled = nullptr);
  std::unique_ptr<Arena> fetch_arena(const ArenaLayout& layout, Deadline deadline,
                                     const Cancelled& cancelled = nullptr);

  const std::byte* map(uint64_t segment) noexcept override;
  // The same, for as long as the caller keeps it. nullptr: it cannot be mapped.
  std::shared_ptr<const Mapping> keep(uint64_t segment) noexcept;
  // Returns a descriptor that the peer lends (see Descriptors) and its size. Returns an empty one
  // if the peer has taken it back. Throws if the peer does not answer.
  std::pair<Fd, uint64_t> borrow(uint64_t id);

 private:
  std::pair<Fd, uint64_t> fetch(uint64_t id, Deadline deadline,
                                const Cancelled& cancelled = nullptr);

  static constexpr size_t kMostMapped = 128;
  // A peer that was stopped and continues answers soon. If it is still stopped, every request waits
  // this long.
  static constexpr double kLateSeconds = 0.1;
  struct Mapped {
    uint64_t segment = 0;
    std::shared_ptr<const Mapping> memory;
  };
  std::mutex mutex_;
  Fd socket_;
  bool owed_ = false;  // the last request has no answer yet
  std::vector<Mapped> mapped_;
};

// The server's side: answers requests for a rank's arena (id 0), this process's segments and the
// descriptors it lends. Runs on the control thread.
class MemoryServer {
 public:
  explicit MemoryServer(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}
  ~MemoryServer();
  MemoryServer(const MemoryServer&) = delete;
  MemoryServer& operator=(const MemoryServer&) = delete;

  // Control thread only.
  void add(Fd connection);

 private:
  void answer(int fd);

  std::shared_ptr<Arena> arena_;
  std::vector<Fd> connections_;
};

}  // namespace weft
