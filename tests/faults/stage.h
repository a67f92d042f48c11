// What the processes of a scenario share besides the library: events with their times, process ids
// and unique ids. It is memory, so a process that was killed leaves it whole.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "nccl.h"

namespace weft::test {

inline void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

class Stage {
 public:
  static constexpr int kMostRanks = 16, kMostIds = 8;
  enum Event { kFault, kDone, kFirst, kSecond, kThird, kChild, kEvents };

  // Makes the file if it does not exist. Throws std::system_error.
  explicit Stage(const std::string& path);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  void mark(Event event);
  bool has(Event event) const;
  // False after `seconds`.
  bool await(Event event, double seconds = 60) const;
  // Seconds since the event; 0: it has not happened.
  double since(Event event) const;
  // Returns when all of `ranks` ranks are here. Every meeting has its own number.
  void meet(int meeting, int ranks);

  void set_pid(int rank, int pid) { shared_->pids[static_cast<size_t>(rank)] = pid; }
  int pid(int rank) const { return shared_->pids[static_cast<size_t>(rank)]; }
  void set_child(int pid) { shared_->child = pid; }
  int child() const { return shared_->child; }

  void give(int number, const ncclUniqueId& id);
  ncclUniqueId take(int number) const;  // waits for it
  // The unique id with this number. Rank 0 makes it.
  ncclUniqueId id(int number, int rank);

 private:
  struct Shared {
    std::array<std::atomic<int64_t>, kEvents> events;
    std::array<std::atomic<int>, 64> meetings;
    std::array<std::atomic<int>, kMostRanks> pids;
    std::atomic<int> child;
    std::array<std::atomic<bool>, kMostIds> given;
    std::array<ncclUniqueId, kMostIds> ids;
  };
  Shared* shared_ = nullptr;
};

}  // namespace weft::test
