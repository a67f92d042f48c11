// See descriptors.h.
#include "src/transport/descriptors.h"

#include <sys/resource.h>

#include <memory>

#include "src/base/fork.h"
#include "src/base/siphash.h"

namespace weft {
namespace {

// A quarter of the process's limit on open files.
size_t most() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 1 << 16;
  return limit.rlim_cur / 4;
}

}  // namespace

Descriptors& Descriptors::instance() {
  static PerProcess<Descriptors> descriptors;
  return descriptors.get();
}

// Never 0, and far from overflow.
Descriptors::Descriptors() {
  fill_random(&next_id_, sizeof next_id_);
  next_id_ = next_id_ / 2 / kStep * kStep + kStep;
}

uint64_t Descriptors::lend(std::vector<Lent> all) {
  std::lock_guard lock(mutex_);
  if (all.empty() || count_ + all.size() > most()) return 0;
  const uint64_t first = next_id_;
  next_id_ += all.size() * kStep;
  count_ += all.size();
  lent_[first] = std::move(all);
  return first;
}

void Descriptors::take_back(uint64_t first) {
  std::lock_guard lock(mutex_);
  const auto it = lent_.find(first);
  if (it == lent_.end()) return;
  count_ -= it->second.size();
  lent_.erase(it);
}

}  // namespace weft
