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
  std::promise<std::shared_ptr<const VerifiedSchedule>> promise;
  Entry entry;
  bool mine = false;
  {
    std::lock_guard lock(mutex_);
    const auto it = entries_.find(key);
    if (it != entries_.end()) {
      entry = it->second;
    } else {
      if (entries_.size() >= kMost) entries_.clear();
      mine = true;
      entry = promise.get_future().share();
      entries_[key] = entry;
    }
  }
  if (mine) {
    try {
      promise.set_value(std::make_shared<const VerifiedSchedule>(
          verify(generator.make(collective, in_place), in_place)));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }
  return entry.get();
}

}  // namespace weft
