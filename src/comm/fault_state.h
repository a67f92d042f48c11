// Why a communicator failed: one text and one code, the same on all ranks. A failure has many
// reports, which come over several ways. The earliest one counts. After a death, the first
// operation that could not go on is named too.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>

#include "src/comm/news.h"

namespace weft {

// Thread-safe. Sticky: once settled, nothing changes it.
class FaultState {
 public:
  // Reports within this time of the first one compete.
  static constexpr std::chrono::milliseconds kSettle{100};
  // A rank may notice a failure before the watch tells whose process has died.
  static constexpr std::chrono::milliseconds kNewsComes{300};

  // `text`: the whole report in words.
  void add(const News& news, const std::string& text);
  // The same of an operation that could not go on, for one that waits on a GPU. It ends nothing.
  void add_stuck(const News& news, const std::string& text);
  // A rank quit. That is a fault only for operations that still need it. Counts from wake() on, or
  // at once if a fault is known.
  void hold(const News& news, const std::string& text);
  // An operation cannot go on. What was held is a report now, and comes first.
  void wake();
  bool holds() const;
  // A report has come.
  bool known() const;
  // Waits for a report. True if one has come.
  bool wait_known(std::chrono::milliseconds most) const;
  // The same, until somebody stops it.
  bool wait_known(std::stop_token stop) const;

  // A rank has died. Counts after other faults too.
  void add_death(int rank, const std::string& text);
  // How one of these ranks died; empty if they live for so long.
  std::string death_of(std::span<const int> ranks, std::chrono::milliseconds most) const;
  // Waits until one has died, or somebody stops it. True if one has.
  bool wait_death_of(std::span<const int> ranks, std::stop_token stop) const;

  struct Answer {
    ncclResult_t code = ncclSuccess;
    std::string text;
  };
  // ncclSuccess until it is settled.
  Answer get() const;
  // Waits until it is settled; a report must have come.
  Answer settle() const;

 private:
  using Clock = std::chrono::steady_clock;
  void keep_first_stuck(const News& news, const std::string& text);
  std::string whole_text() const;
  std::map<int, std::string>::const_iterator find_death(std::span<const int> ranks) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  bool known_ = false;
  News news_;
  std::string text_;
  std::map<int, std::string> deaths_;
  News held_;   // its text is empty: none
  News stuck_;  // the operation that could not go on; its text is empty: none
  Clock::time_point since_;
};

}  // namespace weft
