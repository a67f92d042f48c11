// The side of the hosts that help: takes invitations of ranks, joins their communicators, and sums
// for them (helping_hosts.h). Each communicator has a thread. What one of them does ends nothing
// but its own part.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "src/base/secret.h"
#include "src/comm/help_talk.h"

namespace weft {

class Communicator;

// Thread-safe; one per process.
class HelpService {
 public:
  using Tell = std::function<void(const std::string& line)>;

  // Ranks that know the secret may invite this process, at all addresses of its Acceptor, until
  // their communicators need more than `memory_bytes` together. `tell` says what is served.
  HelpService(const std::string& secret, uint64_t memory_bytes, Tell tell);
  // Waits until no communicator is served.
  ~HelpService();
  HelpService(const HelpService&) = delete;
  HelpService& operator=(const HelpService&) = delete;

  // Returns when so many communicators have been served.
  void wait_for(uint64_t communicators);

 private:
  struct Totals {
    uint64_t calls = 0, bytes = 0;
  };
  void serve(HelpTalk talk);
  void help(HelpTalk& talk);
  // Empty, or why there is no room.
  std::string reserve(uint64_t bytes);
  void release(uint64_t bytes);
  // Until rank 0 has no more calls. Throws Error if the communicator fails.
  static void work(const HelpStart& start, Communicator& members, Totals& totals);
  void tell(const std::string& line);

  const Secret secret_;
  const uint64_t memory_bytes_;
  const Tell tell_;
  std::mutex mutex_;  // protects what follows
  std::condition_variable changed_;
  uint64_t reserved_ = 0, served_ = 0, threads_ = 0;
};

}  // namespace weft
