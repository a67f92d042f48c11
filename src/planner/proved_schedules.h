// The proved schedules of this process. Its ranks share them: each is generated and verified once.
#pragma once

#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "algorithms/generators/generators.h"
#include "src/base/once_cache.h"
#include "src/schedule/verify.h"

namespace weft {

// Thread-safe; one per process. If another rank is already making the schedule, get() waits for it.
class ProvedSchedules {
 public:
  static ProvedSchedules& instance();

  // `hosts`: Placement::hosts. Only generators for hosts look at it.
  std::shared_ptr<const VerifiedSchedule> get(const Generator& generator,
                                              const Collective& collective, bool in_place,
                                              const std::vector<int>& hosts = {});

 private:
  using Key = std::tuple<std::string_view, CollectiveKind, int, int, bool, std::vector<int>>;
  OnceCache<Key, VerifiedSchedule> cache_{512};
};

}  // namespace weft
