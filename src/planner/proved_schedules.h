// The proved schedules of this process. Its ranks share them: each is generated and verified once.
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

// Thread-safe; one per process. If another rank is already making the schedule, get() waits for it.
class ProvedSchedules {
 public:
  static ProvedSchedules& instance();

  std::shared_ptr<const VerifiedSchedule> get(const Generator& generator,
                                              const Collective& collective, bool in_place);

 private:
  using Key = std::tuple<std::string_view, CollectiveKind, int, int, bool>;
  using Entry = std::shared_future<std::shared_ptr<const VerifiedSchedule>>;
  static constexpr size_t kMost =
      512;  // beyond this all are dropped; communicators keep the plans they use

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace weft
