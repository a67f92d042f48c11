// See fake_memory.h.
#include "tests/exec/cuda/sharing/fake_memory.h"

#include <cstring>

namespace weft::test {

using cuda::BoardEntry;
using cuda::Shared;

size_t FakeDevice::alive() {
  std::lock_guard lock(mutex);
  size_t count = 0;
  for (const auto& [id, physical] : all) count += physical.owned || physical.mappings > 0 ? 1 : 0;
  return count;
}

FakeMemory::~FakeMemory() {
  std::lock_guard lock(device_.mutex);
  if (!imported_.empty()) device_.wrong = "memory of peers is still mapped";
  if (!reserved_.empty()) device_.wrong = "addresses are still reserved";
}

const FakeMemory::Range* FakeMemory::at(const Space& space, uint64_t address) {
  auto it = space.upper_bound(address);
  if (it == space.begin()) return nullptr;
  --it;
  return address < it->first + it->second.size ? &it->second : nullptr;
}

void FakeMemory::allocate(uint64_t base, uint64_t size, FakeKind kind) {
  std::lock_guard lock(device_.mutex);
  const uint64_t id = device_.next++;
  device_.all[id].kind = kind;
  own_[base] = {size, id};
}

void FakeMemory::free(uint64_t base) {
  std::lock_guard lock(device_.mutex);
  device_.all[own_[base].id].owned = false;
  own_.erase(base);
}

void FakeMemory::write(uint64_t base, uint64_t stamp) {
  std::lock_guard lock(device_.mutex);
  device_.all[own_[base].id].stamp = stamp;
}

// With the lock.
FakeDevice::Physical* FakeMemory::read(size_t number, uint64_t offset) {
  const Range* range = at(imported_, table_[number] + offset);
  if (range != nullptr) return &device_.all[range->id];
  device_.wrong = "a kernel read memory that is not mapped";
  return nullptr;
}

uint64_t FakeMemory::start_reading(size_t number, uint64_t offset) {
  std::lock_guard lock(device_.mutex);
  FakeDevice::Physical* physical = read(number, offset);
  if (physical == nullptr) return 0;
  physical->readers++;
  return physical->stamp;
}

void FakeMemory::end_reading(size_t number, uint64_t offset) {
  std::lock_guard lock(device_.mutex);
  FakeDevice::Physical* physical = read(number, offset);
  if (physical != nullptr) physical->readers--;
}

uint64_t FakeMemory::id(uint64_t address) {
  queries_++;
  std::lock_guard lock(device_.mutex);
  const Range* range = at(own_, address);
  return range == nullptr ? 0 : range->id;
}

// The application may free memory at any time, but not that of a call.
void FakeMemory::check_thread() {
  if (std::this_thread::get_id() == background_)
    device_.wrong = "a background thread asked for memory that may be freed meanwhile";
}

bool FakeMemory::find(uint64_t address, cuda::Allocation& found) {
  std::lock_guard lock(device_.mutex);
  check_thread();
  const Range* range = at(own_, address);
  if (range == nullptr) return false;
  for (const auto& [base, each] : own_)
    if (&each == range) found = {base, each.size, each.id};
  return true;
}

Shared FakeMemory::share(const cuda::Allocation& allocation, bool, BoardEntry& entry,
                         std::string& why) {
  if (during_share) during_share();
  std::lock_guard lock(device_.mutex);
  check_thread();
  shares_++;
  FakeDevice::Physical& physical = device_.all[allocation.id];
  if (!physical.owned) device_.wrong = "a handle of freed memory was asked for";
  if (physical.kind == FakeKind::kPrivate) {
    why = "it has no handle";
    return Shared::kNo;
  }
  if (physical.kind == FakeKind::kIpc) {
    std::memcpy(entry.handle, &allocation.id, sizeof allocation.id);
    return Shared::kYes;
  }
  int lent = 0;
  for (const auto& [base, range] : own_) lent += device_.all[range.id].lent ? 1 : 0;
  if (lent >= most_lent) {
    why = "too many descriptors";
    return Shared::kLater;
  }
  physical.lent = true;
  entry.descriptor = allocation.id;
  entry.region = 1;
  return Shared::kYes;
}

void FakeMemory::take_back(uint64_t descriptor) {
  std::lock_guard lock(device_.mutex);
  if (descriptor != 0) device_.all[descriptor].lent = false;
}

uint64_t FakeMemory::reserve(uint64_t bytes) {
  std::lock_guard lock(device_.mutex);
  const uint64_t base = next_address_;
  next_address_ += bytes;
  reserved_.insert(base);
  return base;
}

void FakeMemory::unreserve(uint64_t base, uint64_t) {
  std::lock_guard lock(device_.mutex);
  if (reserved_.erase(base) == 0) device_.wrong = "addresses were freed twice";
  if (at(imported_, base) != nullptr) device_.wrong = "addresses were freed that are in use";
}

uint64_t FakeMemory::map(int, const BoardEntry& entry, uint64_t at_address, std::string& why) {
  std::lock_guard lock(device_.mutex);
  maps_++;
  why = "it was withdrawn";
  uint64_t id = entry.descriptor;
  if (entry.region == 0) std::memcpy(&id, entry.handle, sizeof id);
  FakeDevice::Physical& physical = device_.all[id];
  if (refuses || (entry.region != 0 && !physical.lent) ||
      (!physical.owned && physical.mappings == 0))
    return 0;
  if (entry.region == 0) {
    at_address = next_address_;
    next_address_ += entry.size;
  }
  if (at(imported_, at_address) != nullptr || at(imported_, at_address + entry.size - 1) != nullptr)
    device_.wrong = "memory was mapped over other memory";
  imported_[at_address] = {entry.size, id};
  physical.mappings++;
  return at_address;
}

void FakeMemory::unmap(const BoardEntry&, uint64_t at_address) {
  std::lock_guard lock(device_.mutex);
  const auto it = imported_.find(at_address);
  if (it == imported_.end()) {
    device_.wrong = "memory was unmapped twice";
    return;
  }
  FakeDevice::Physical& physical = device_.all[it->second.id];
  if (physical.readers > 0) device_.wrong = "memory was unmapped that a kernel reads";
  physical.mappings--;
  imported_.erase(it);
}

void FakeMemory::flush_table() {
  std::lock_guard lock(device_.mutex);
  for (const auto& [index, address] : changes_) table_[index] = address;
  changes_.clear();
}

}  // namespace weft::test
