// See own_memory.h. What calls ask; own_memory_share.cc puts memory on the board,
// own_memory_tend.cc has the background thread's part.
#include "src/exec/cuda/own_memory.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "src/base/log.h"
#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {
namespace {

constexpr std::chrono::hours kForGood{24 * 365};
constexpr size_t kMostRefused = 4096;
// Allocations that a launch shares. A buffer in expandable segments may have hundreds, and each
// takes some microseconds (23 on an H200 if it is from cudaMalloc). The next launches go on.
constexpr int kMostNew = 8;

}  // namespace

OwnMemory::OwnMemory(int rank, int nranks, Board board, const SharingOptions& options,
                     std::shared_ptr<MemoryDriver> driver, std::function<void()> wake)
    : rank_(rank),
      nranks_(nranks),
      options_(options),
      driver_(std::move(driver)),
      wake_(std::move(wake)),
      board_(board),
      slots_(options.slots, false) {}

OwnMemory::~OwnMemory() {
  if (placed_ + private_ > 0)
    WEFT_INFO(kReg, "rank {}: {} buffers of calls were used where they lie, {} were private",
              label(), placed_, private_);
  if (nics_ != nullptr && nics_->sent + nics_->received > 0)
    WEFT_INFO(kReg, "rank {}: NICs sent {} messages from buffers of calls and brought {} into them",
              label(), nics_->sent.load(), nics_->received.load());
  for (const auto& [base, own] : own_) driver_->take_back(own.descriptor);
}

bool OwnMemory::empty() const {
  std::lock_guard lock(mutex_);
  return own_.empty();
}

OwnMemory::Owned::iterator OwnMemory::at(uint64_t address) {
  auto it = own_.upper_bound(address);
  if (it == own_.begin()) return own_.end();
  --it;
  return address < it->second.end() ? it : own_.end();
}

void OwnMemory::add(const void* pointer, size_t size) {
  const auto begin = reinterpret_cast<uint64_t>(pointer), end = begin + size;
  Registration registration{{begin, end}, {}};
  const Shared shared =
      share(begin, end, false, &registration.parts, std::numeric_limits<int>::max());
  if (shared != Shared::kYes)
    WEFT_INFO(kReg, "the buffer at {} stays private to this process{}", pointer,
              shared == Shared::kLater ? " for now" : "");
  std::lock_guard lock(mutex_);
  if (shared != Shared::kNo) {
    registrations_.push_back(std::move(registration));
    changed();  // calls that found it private ask again
  } else {
    release(registration.parts);
  }
}

// Calls may have used the memory without asking who registered it. So where memory is shared
// automatically it stays, until it is freed or other memory needs its room.
void OwnMemory::release(const std::vector<Allocation>& parts) {
  for (const Allocation& part : parts) {
    const auto it = own_.find(part.base);
    if (it == own_.end() || it->second.memory.id != part.id) continue;
    if (--it->second.registered == 0 && !it->second.ours && !options_.automatic) withdraw(it);
  }
  changed();
}

void OwnMemory::remove(const void* pointer) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(registrations_.begin(), registrations_.end(),
                                  [&](const Registration& r) { return r.range.begin == address; });
  if (found == registrations_.end()) return;
  release(found->parts);
  registrations_.erase(found);
}

OwnMemory::Range OwnMemory::registered_at(uint64_t address) const {
  std::lock_guard lock(mutex_);
  for (const auto& [range, parts] : registrations_)
    if (range.begin <= address && address < range.end) return range;
  return {};
}

void OwnMemory::withdraw_all() {
  std::lock_guard lock(mutex_);
  for (auto it = own_.begin(); it != own_.end();) it = withdraw(it);
}

OwnMemory::Owned::iterator OwnMemory::withdraw(Owned::iterator it) {
  Own& own = it->second;
  BoardEntry gone;
  gone.base = own.memory.base;
  board_.publish(own.slot, gone);
  if (own.nic >= 0) nics_->take_out(own.nic);
  driver_->take_back(own.descriptor);
  slots_[own.slot] = false;
  changed();
  return own_.erase(it);
}

// Looks at the answers that are still missing.
void OwnMemory::hear(Own& own) {
  for (int peer = 0; peer < nranks_; peer++) {
    const uint32_t bit = uint32_t{1} << peer;
    if (peer == rank_ || ((own.mapped_by | own.refused_by) & bit) != 0) continue;
    const Board::Answer answer = board_.answer_of(own.slot, peer, own.version);
    if (answer == Board::Answer::kMapped) own.mapped_by |= bit;
    if (answer == Board::Answer::kRefused) own.refused_by |= bit;
  }
  own.answered = std::popcount(own.mapped_by | own.refused_by) == nranks_ - 1;
}

uint32_t OwnMemory::needed(int peer) const {
  const uint32_t all = static_cast<uint32_t>((uint64_t{1} << nranks_) - 1) & ~(1u << rank_);
  return peer < 0 ? all : 1u << peer & all;
}

bool OwnMemory::usable(Own& own, int peer, bool captured) {
  if (own.retiring || (captured && !own.is_kept())) return false;
  if (peer == kNics) return own.nic >= 0 && nics_->state(own.nic) == NicBuffers::State::kReady;
  const uint32_t peers = needed(peer);
  if ((own.mapped_by & peers) != peers && !own.answered) hear(own);
  return (own.mapped_by & peers) == peers;
}

bool OwnMemory::refused(const Own& own, int peer) {
  if (own.retiring) return false;
  if (peer == kNics) return own.nic < 0 || nics_->state(own.nic) == NicBuffers::State::kRefused;
  return (own.refused_by & needed(peer)) != 0;
}

void OwnMemory::begin_launch() {
  now_ = Clock::now();
  ids_.fill({0, 0});
}

// Nobody may free the buffers of a launch before it ends: one query is enough.
uint64_t OwnMemory::id_in_launch(uint64_t address) {
  for (const auto& [asked, id] : ids_)
    if (asked == address) return id;
  auto& [asked, id] = ids_[next_id_++ % ids_.size()];
  asked = address;
  return id = driver_->id(address);
}

bool OwnMemory::is_known(const Known& known, uint64_t begin, uint64_t end, int peer) {
  return known.begin == begin && known.end == end && known.peer == peer &&
         known.epoch == epoch_.load(std::memory_order_acquire) && now_ < known.until &&
         (!known.watched || id_in_launch(known.at) == known.id);
}

uint64_t OwnMemory::place(const void* pointer, size_t size, int peer, bool captured) {
  if (pointer == nullptr || size == 0) return 0;
  const auto begin = reinterpret_cast<uint64_t>(pointer), end = begin + size;
  Known now;
  now.begin = begin;
  now.end = end;
  now.peer = peer;
  if (captured) return find_place(now, true);
  const uint64_t hash = (begin >> 8 ^ size ^ static_cast<uint64_t>(peer)) * 0x9e3779b97f4a7c15;
  Known& known = known_[hash >> 58];
  static_assert(std::tuple_size_v<decltype(known_)> == size_t{1} << (64 - 58));
  if (!is_known(known, begin, end, peer)) {
    now.place = find_place(now, false);
    known = now;
  }
  known.used = now_;
  (known.place == kPrivate ? private_ : placed_)++;
  return known.place;
}

// Fills in `known.epoch` if the place stays while the allocation does.
uint64_t OwnMemory::find_place(Known& known, bool captured) {
  std::unique_lock lock(mutex_);
  const auto first = at(known.begin);
  auto it = first;
  bool all = true;  // may be used so far
  for (uint64_t next = known.begin; next < known.end; next = it->second.end(), ++it) {
    const bool found = it != own_.end() && it->first <= next;
    // The memory may have been freed, and this may be other memory at the same address.
    const bool stale =
        found && it->second.registered == 0 && id_in_launch(it->first) != it->second.memory.id;
    if (stale) withdraw(it);
    if (!found || stale) {
      lock.unlock();
      ask(known, next, captured);
      return kPrivate;
    }
    Own& own = it->second;
    const bool use = usable(own, known.peer, captured);
    const bool never = refused(own, known.peer);
    if (it == first && known.end <= own.end() && (use || never)) {
      known.epoch = epoch_.load(std::memory_order_relaxed);
      known.at = own.memory.base;
      known.id = own.memory.id;
      known.watched = own.registered == 0;
    }
    if (never || own.region != first->second.region || (own.region == 0 && it != first))
      return kPrivate;
    // A message must not span two registrations.
    if (known.peer == kNics && it != first) return kPrivate;
    all = all && use;
    own.used = now_;
  }
  if (!all) return kPrivate;
  if (known.peer == kNics) return known.begin;
  const Own& own = first->second;
  const uint64_t index = own.region == 0 ? own.slot : options_.slots + own.region - 1;
  const uint64_t from =
      own.region == 0 ? own.memory.base : own.memory.base / kRegionBytes * kRegionBytes;
  return (index + 1) << kOffsetBits | (known.begin - from);
}

// The call goes without. Later ones may find the memory on the board. `from`: what is before it is
// there already.
void OwnMemory::ask(Known& known, uint64_t from, bool captured) {
  const uint64_t epoch = epoch_.load(std::memory_order_acquire);
  const Range range = registered_at(from);
  const bool registered = range.end != 0;
  if (!registered && known.end - known.begin < options_.least_used) return;
  const bool ours = driver_->is_ours(from);
  if (!ours && !registered && (!options_.automatic || captured)) return;
  const uint64_t id = id_in_launch(from);
  if (id == 0) return;
  const auto it = refused_.find(id);
  if (it != refused_.end() && now_ < it->second.until && (it->second.registered || !registered)) {
    known.epoch = epoch;
    known.at = from;
    known.id = id;
    known.until = it->second.until;
    return;
  }
  const Shared shared = registered ? share_registered(range, from, known.end, ours)
                                   : share(from, known.end, ours, nullptr, kMostNew);
  if (refused_.size() > kMostRefused) refused_.clear();
  if (shared == Shared::kYes) refused_.erase(id);
  if (shared == Shared::kNo) refused_[id] = {now_ + kForGood, registered};
  if (shared == Shared::kLater) refused_[id] = {now_ + options_.idle, registered};
  wake_();
}

// Other threads may register and deregister meanwhile.
Shared OwnMemory::share_registered(Range range, uint64_t from, uint64_t end, bool ours) {
  std::vector<Allocation> parts;
  const Shared shared = share(from, end, ours, &parts, kMostNew);
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(registrations_.begin(), registrations_.end(),
                               [&](const Registration& r) { return r.range == range; });
  if (it != registrations_.end()) {
    it->parts.insert(it->parts.end(), parts.begin(), parts.end());
  } else {
    release(parts);
  }
  return shared;
}

void OwnMemory::launched(cudaStream_t stream) {
  if (mark_.load(std::memory_order_acquire) != Mark::kWanted) return;
  driver_->mark(stream);
  mark_.store(Mark::kSet, std::memory_order_release);
}

}  // namespace weft::cuda
