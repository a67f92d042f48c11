// See segment_registrations.h.
#include "src/transport/segment_registrations.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "src/base/error.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/transport/proxy.h"
#include "src/transport/segments.h"

namespace weft {
namespace {

// Who may have a segment registered. Thread-safe.
class Holders {
 public:
  static Holders& instance() {
    static PerProcess<Holders> holders;
    return holders.get();
  }
  void add(uint64_t segment, const SegmentRegistrations* by, Proxy& proxy) {
    std::lock_guard lock(mutex_);
    all_.push_back({segment, by, &proxy});
  }
  void remove(uint64_t segment, const SegmentRegistrations* by) noexcept {
    std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const Holder& h) { return h.segment == segment && h.by == by; });
  }
  // Proxies live as long as the process. nullptr: nobody has it.
  Proxy* proxy_of(uint64_t segment) noexcept {
    std::lock_guard lock(mutex_);
    const auto it = std::find_if(all_.begin(), all_.end(),
                                 [&](const Holder& h) { return h.segment == segment; });
    return it == all_.end() ? nullptr : it->proxy;
  }

 private:
  struct Holder {
    uint64_t segment;
    const SegmentRegistrations* by;
    Proxy* proxy;
  };
  std::mutex mutex_;
  std::vector<Holder> all_;
};

}  // namespace

SegmentRegistrations::~SegmentRegistrations() {
  while (!known_.empty()) drop(known_.end() - 1);
}

SegmentRegistrations::Memory SegmentRegistrations::find(uint64_t segment, uint64_t until) noexcept {
  auto it = std::find_if(known_.begin(), known_.end(),
                         [&](const Known& known) { return known.segment == segment; });
  if (it == known_.end()) {
    add(segment);
    it = known_.end() - 1;
    if (it->memory.data == nullptr) {
      drop(it);
      return {};
    }
  }
  it->until = until;
  std::rotate(it, it + 1, known_.end());
  return known_.back().memory;
}

void SegmentRegistrations::add(uint64_t segment) {
  if (known_.size() >= kMost && known_.front().until <= done_) drop(known_.begin());
  // First, so that whoever frees the segment from here on waits for this connection.
  Holders::instance().add(segment, this, proxy_);
  const std::span<std::byte> memory = Segments::instance().view(segment);
  Known fresh{segment, 0, {memory.data(), nullptr}};
  try {
    if (!memory.empty()) fresh.memory.registration = comm_.reg(memory.data(), memory.size());
  } catch (const Error& error) {
    WEFT_WARN("{} MiB of ncclMemAlloc are copied before they are sent: {}", memory.size() >> 20,
              error.what());
  }
  known_.push_back(fresh);
}

bool SegmentRegistrations::tidy(uint64_t done) noexcept {
  done_ = done;
  const uint64_t releases = Segments::instance().releases();
  if (releases == releases_) return true;
  releases_ = releases;
  bool unused = true;
  for (size_t i = known_.size(); i-- > 0;) {
    if (!Segments::instance().view(known_[i].segment).empty()) continue;
    unused = unused && (known_[i].memory.registration == nullptr || known_[i].until <= done_);
    drop(known_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return unused;
}

void SegmentRegistrations::drop(std::vector<Known>::iterator it) noexcept {
  // A comm that was closed has deregistered its memory.
  if (it->memory.registration != nullptr && comm_) comm_.dereg(it->memory.registration);
  Holders::instance().remove(it->segment, this);
  known_.erase(it);
}

void SegmentRegistrations::forget(uint64_t segment) noexcept {
  while (Proxy* proxy = Holders::instance().proxy_of(segment)) {
    proxy->drive_all();  // streams tidy() when they move
    // A stream that has left its proxy ends soon. Or the proxy served higher classes only.
    if (Holders::instance().proxy_of(segment) == proxy)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace weft
