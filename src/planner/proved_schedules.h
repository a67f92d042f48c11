// Proved schedules of this process, shared by its ranks: each is generated and verified once.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "algorithms/generators/generators.h"
#include "src/schedule/verify.h"

namespace weft {

// Thread-safe; one per process. Ranks that ask for a schedule while another makes it wait for that
// one.
class ProvedSchedules {
 public:
  static ProvedSchedules& instance();

  std::shared_ptr<const VerifiedSchedule> get(const Generator& generator,
                                              const Collective& collective, bool in_place);

 private:
  using Key = std::tuple<std::string_view, CollectiveKind, int, int, bool>;
  using Entry = std::shared_future<std::shared_ptr<const VerifiedSchedule>>;
  static constexpr size_t kMost =
      512;  // then all are forgotten; plans in use stay alive in their communicators

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace weft
