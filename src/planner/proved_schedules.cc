// See proved_schedules.h.
#include "src/planner/proved_schedules.h"

namespace weft {

ProvedSchedules& ProvedSchedules::instance() {
  static ProvedSchedules& store =
      *std::make_unique<ProvedSchedules>().release();  // exit handlers may need it
  return store;
}

std::shared_ptr<const VerifiedSchedule> ProvedSchedules::get(const Generator& generator,
                                                             const Collective& collective,
                                                             bool in_place,
                                                             const std::vector<int>& hosts) {
  Key key{generator.name, collective.kind, collective.nranks, collective.root, in_place, {}};
  if (generator.make_for_hosts != nullptr) std::get<std::vector<int>>(key) = hosts;
  return cache_.get(key, [&] {
    return std::make_shared<const VerifiedSchedule>(
        verify(generator.make_on(hosts, collective, in_place), in_place));
  });
}

}  // namespace weft
