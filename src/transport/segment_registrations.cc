// See segment_registrations.h.
#include "src/transport/segment_registrations.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/transport/segments.h"

namespace weft {

SegmentRegistrations::Memory SegmentRegistrations::find(NetComm& comm, uint64_t segment,
                                                        uint64_t until) noexcept {
  auto it = std::find_if(known_.begin(), known_.end(),
                         [&](const Known& known) { return known.segment == segment; });
  if (it == known_.end()) {
    const std::span<std::byte> memory = Segments::instance().view(segment);
    if (memory.empty()) return {};
    if (known_.size() >= kMost && known_.front().until <= done_) drop(comm, known_.begin());
    Known fresh{segment, 0, {memory.data(), nullptr}};
    try {
      fresh.memory.registration = comm.reg(memory.data(), memory.size());
    } catch (const Error& error) {
      WEFT_WARN("{} MiB of ncclMemAlloc are copied before they are sent: {}", memory.size() >> 20,
                error.what());
    }
    known_.push_back(fresh);
    it = known_.end() - 1;
  }
  it->until = until;
  std::rotate(it, it + 1, known_.end());
  return known_.back().memory;
}

void SegmentRegistrations::tidy(NetComm& comm, uint64_t done) noexcept {
  done_ = done;
  const uint64_t releases = Segments::instance().releases();
  if (releases == releases_) return;
  bool complete = true;
  for (auto it = known_.begin(); it != known_.end();) {
    const bool freed = Segments::instance().view(it->segment).empty();
    const bool gone = freed && it->until <= done_;
    complete = complete && freed == gone;
    const auto at = it - known_.begin();
    if (gone) drop(comm, it);
    it = known_.begin() + at + (gone ? 0 : 1);
  }
  if (complete) releases_ = releases;
}

void SegmentRegistrations::drop(NetComm& comm, std::vector<Known>::iterator it) noexcept {
  if (it->memory.registration != nullptr) comm.dereg(it->memory.registration);
  known_.erase(it);
}

}  // namespace weft
