// See flat_window.h.
#include "src/exec/cuda/flat_window.h"

#include <algorithm>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/device_store.h"
#include "src/exec/cuda/virtual_memory.h"
#include "src/transport/descriptors.h"

namespace weft::cuda {
namespace {

constexpr uint64_t kFourGiB = uint64_t{1} << 32;
constexpr uint64_t kGranularity = 2 << 20;  // of mappings, on all GPUs so far

}  // namespace

uint64_t LentWindow::bytes() const {
  uint64_t sum = 0;
  for (const Part& part : parts) sum += part.size;
  return sum;
}

LentWindow lend_window(int device, const void* pointer, size_t size, std::string& why) {
  const SetupScope scope(device);
  LentWindow lent;
  std::vector<Descriptors::Lent> all;
  const auto begin = reinterpret_cast<uint64_t>(pointer);
  for (uint64_t next = begin; next < begin + size;) {
    uint64_t base = 0, bytes = 0;
    if (!find_allocation(next, base, bytes)) {
      why = "it is not device memory";
      return {};
    }
    if (next == begin) lent.lead = begin - base;
    Fd fd = export_allocation(base, why);
    if (!fd) {
      why += "; ncclMemAlloc gives memory for windows";
      return {};
    }
    lent.parts.push_back({base, bytes, 0});
    all.push_back({std::move(fd), bytes});
    next = base + bytes;
  }
  uint64_t number = Descriptors::instance().lend(std::move(all));
  if (number == 0) {
    why = "too many descriptors would be open at once (ulimit -n)";
    return {};
  }
  for (LentWindow::Part& part : lent.parts) {
    part.descriptor = number;
    number += Descriptors::kStep;
  }
  return lent;
}

void take_back(const LentWindow& lent) {
  if (!lent.parts.empty()) Descriptors::instance().take_back(lent.parts.front().descriptor);
}

// The windows of all members begin at the same place of their stretch, so members whose windows
// begin closer to the start of their allocations have a gap in front.
FlatWindow::FlatWindow(int device, std::span<const Member> team, const Borrow& borrow)
    : device_(device) {
  const SetupScope scope(device);
  for (const Member& member : team) lead_ = std::max(lead_, member.lent.lead);
  uint64_t longest = 0;
  for (const Member& member : team) {
    const uint64_t gap = lead_ - member.lent.lead;
    if (gap % kGranularity != 0)
      fail(ncclInvalidArgument,
           "the ranks' buffers do not begin at the same place of their allocations");
    longest = std::max(longest, gap + member.lent.bytes());
  }
  stride_4g_ = static_cast<uint32_t>(ceil_div(longest, kFourGiB));
  bytes_ = team.size() * stride_4g_ * kFourGiB;
  base_ = reserve_addresses(bytes_);
  if (base_ == 0) fail(ncclSystemError, "{} GiB of addresses cannot be reserved", bytes_ >> 30);
  for (size_t number = 0; number < team.size(); number++) {
    const std::string why = map(number, team[number], borrow);
    if (why.empty()) continue;
    unmap(mapped_, base_, bytes_);
    fail(ncclSystemError, "memory of rank {} of the host cannot be mapped: {}", number, why);
  }
}

// Returns why it cannot; empty if it can.
std::string FlatWindow::map(size_t number, const Member& member, const Borrow& borrow) {
  uint64_t at = base_ + number * stride_4g_ * kFourGiB + lead_ - member.lent.lead;
  std::string why;
  for (const LentWindow::Part& part : member.lent.parts) {
    try {
      if (member.here) {
        map_again(part.base, at, part.size, device_, why);
      } else if (const Fd fd = borrow(number, part.descriptor)) {
        map_allocation(fd, at, part.size, device_, why);
      } else {
        why = "it is lent no more";
      }
    } catch (const Error& error) {
      why = error.what();
    }
    if (!why.empty()) return why;
    mapped_.push_back({at, part.size});
    at += part.size;
  }
  return why;
}

FlatWindow::~FlatWindow() {
  DeviceStore::instance().free_when_quiet(
      device_,
      [mapped = std::move(mapped_), base = base_, bytes = bytes_] { unmap(mapped, base, bytes); });
}

void FlatWindow::unmap(const std::vector<Mapped>& mapped, uint64_t base, uint64_t bytes) {
  for (const Mapped& one : mapped) unmap_allocation(one.at, one.size);
  free_addresses(base, bytes);
}

char* FlatWindow::at(size_t member) const {
  return reinterpret_cast<char*>(base_ + member * stride_4g_ * kFourGiB + lead_);
}

}  // namespace weft::cuda
