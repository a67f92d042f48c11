// See own_memory.h. What calls and users do; own_memory_tend.cc has the background thread's part.
#include "src/exec/cuda/own_memory.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/exec/cuda/device_comm.h"

namespace weft::cuda {
namespace {

constexpr size_t kMostRequests = 64;

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
  Registration registration{begin, end, {}};
  const Shared shared = share(begin, end, false, &registration.parts);
  std::lock_guard lock(mutex_);
  if (shared == Shared::kYes) {
    registrations_.push_back(std::move(registration));
    return;
  }
  release(registration.parts);
  WEFT_INFO(kReg, "the buffer at {} stays private to this process", pointer);
}

// Calls may have used the memory without asking who registered it. So where memory is shared
// automatically it stays, until it is freed or other memory needs its room.
void OwnMemory::release(const std::vector<Allocation>& parts) {
  for (const Allocation& part : parts) {
    const auto it = own_.find(part.base);
    if (it == own_.end() || it->second.memory.id != part.id) continue;
    if (--it->second.registered == 0 && !it->second.ours && !options_.automatic) withdraw(it);
  }
}

void OwnMemory::remove(const void* pointer) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(registrations_.begin(), registrations_.end(),
                   [&](const Registration& r) { return r.begin <= address && address < r.end; });
  if (found == registrations_.end()) return;
  release(found->parts);
  registrations_.erase(found);
}

OwnMemory::Owned::iterator OwnMemory::withdraw(Owned::iterator it) {
  Own& own = it->second;
  BoardEntry gone;
  gone.base = own.memory.base;
  board_.publish(own.slot, gone);
  driver_->take_back(own.descriptor);
  slots_[own.slot] = false;
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
}

bool OwnMemory::usable(Own& own, int peer, bool captured) {
  if (own.retiring || (captured && !own.is_kept())) return false;
  const uint32_t all = static_cast<uint32_t>((uint64_t{1} << nranks_) - 1) & ~(1u << rank_);
  const uint32_t needed = peer < 0 ? all : 1u << peer & all;
  if ((own.mapped_by & needed) != needed) hear(own);
  return (own.mapped_by & needed) == needed;
}

uint64_t OwnMemory::place(const void* pointer, size_t size, int peer, bool captured) {
  if (pointer == nullptr || size == 0) return 0;
  const auto begin = reinterpret_cast<uint64_t>(pointer), end = begin + size;
  std::lock_guard lock(mutex_);
  const auto first = at(begin);
  auto it = first;
  for (uint64_t next = begin; next < end; next = it->second.end(), ++it) {
    if (it == own_.end() || it->first > next) return ask(begin, end, captured);
    Own& own = it->second;
    // The memory may have been freed, and this may be other memory at the same address.
    if (own.registered == 0 && driver_->id(own.memory.base) != own.memory.id) {
      withdraw(it);
      return ask(begin, end, captured);
    }
    if (!usable(own, peer, captured)) return kPrivate;
    if (own.region != first->second.region || (own.region == 0 && it != first)) return kPrivate;
    own.used = Clock::now();
  }
  const Own& own = first->second;
  const uint64_t index = own.region == 0 ? own.slot : options_.slots + own.region - 1;
  const uint64_t from =
      own.region == 0 ? own.memory.base : own.memory.base / kRegionBytes * kRegionBytes;
  return (index + 1) << kOffsetBits | (begin - from);
}

// The call goes without. Later ones may find the memory on the board.
uint64_t OwnMemory::ask(uint64_t begin, uint64_t end, bool captured) {
  const bool ours = driver_->is_ours(begin);
  if (!ours && (!options_.automatic || captured)) return kPrivate;
  const uint64_t id = driver_->id(begin);
  if (id == 0 || requests_.size() >= kMostRequests) return kPrivate;
  if (const auto it = refused_.find(id); it != refused_.end()) {
    if (Clock::now() < it->second) return kPrivate;
    refused_.erase(it);
  }
  for (const Request& request : requests_)
    if (request.id == id) return kPrivate;
  requests_.push_back({begin, end, id, ours});
  wake_();
  return kPrivate;
}

void OwnMemory::launched(cudaStream_t stream) {
  if (mark_.load(std::memory_order_acquire) != Mark::kWanted) return;
  driver_->mark(stream);
  mark_.store(Mark::kSet, std::memory_order_release);
}

}  // namespace weft::cuda
