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
                                                             bool in_place) {
  const Key key{generator.name, collective.kind, collective.nranks, collective.root, in_place};
  return cache_.get(key, [&] {
    return std::make_shared<const VerifiedSchedule>(
        verify(generator.make(collective, in_place), in_place));
  });
}

}  // namespace weft
