// Fetches the schedules that a machine needs from the cache folder, or synthesizes and stores them.
// Thread-safe. It has copies of what it is given, so its work may outlast the caller.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "src/base/config.h"
#include "src/planner/imported_schedules.h"
#include "src/schedule/collective.h"
#include "src/simulator/lane_cut.h"
#include "src/topology/graph/machine.h"

namespace weft {

// From this much time on, searches run to their end.
inline constexpr double kPatientSeconds = 1;

class ScheduleMaker {
 public:
  // `costs`: GPUs run the schedules as lanes. `seconds` are for all schedules.
  ScheduleMaker(const Config& config, const Machine& machine, const std::optional<LaneCosts>& costs,
                double seconds);

  struct Outcome {
    std::shared_ptr<const ImportedSchedule> schedule;
    bool fetched = false;
    bool left = false;       // there was no time to make it
    bool cut_short = false;  // with more time there might be a better one
  };
  // How many schedules are wanted. The most important come first.
  static size_t wanted();
  static std::string title(size_t number);
  // Without costs, links alone count, and schedules for more sizes gain little.
  bool wants(size_t number) const;
  // Among how many the time is shared that is left before this one.
  static size_t shares(size_t number);
  // Whether get() searches for what the cache lacks, as long as there is time. If not, it is left.
  bool searches_for(size_t number) const;
  Outcome get(size_t number);

  // What get() would fetch, not looked at yet; nullopt: the cache has no such schedule.
  struct Known {
    std::string title;
    Collective collective;
    std::string text;
    bool cut_short = false;
  };
  std::optional<Known> find(size_t number) const;

  // Whether there is a cache folder, and where in it the schedules lie.
  const std::string& folder() const { return folder_; }
  // Searches for at most `seconds`, and keeps the result for good. False: it is there already, or
  // there is none.
  bool complete(size_t number, double seconds);

 private:
  std::string path_of(const std::string& name, const char* kind) const;
  std::shared_ptr<const ImportedSchedule> fetch(size_t number, const char* kind) const;
  void keep(const std::string& path, const std::string& text);

  const Config config_;
  const Machine machine_;
  const std::optional<LaneCosts> costs_;
  const double seconds_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  int ranks_ = 0;
  bool searches_ = true;
  std::string folder_;
  std::atomic<bool> writable_{true};
};

}  // namespace weft
