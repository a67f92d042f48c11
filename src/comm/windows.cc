// See windows.h.
#include "src/comm/windows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/remote_writes.h"
#include "src/transport/segments.h"

namespace weft {

// Consecutive ranks of equal hosts: the greatest common divisor of the lengths of all runs.
int Windows::compute_lsa_size() const {
  if (parts_.gpu == nullptr || !parts_.gpu->lsa()) return 1;
  int size = 0, run = 1;
  for (int rank = 1; rank <= parts_.options.nranks; rank++) {
    if (rank < parts_.options.nranks &&
        parts_.mesh.info(rank).host == parts_.mesh.info(rank - 1).host) {
      run++;
    } else {
      size = std::gcd(size, run);
      run = 1;
    }
  }
  return size;
}

Windows::Windows(const WindowParts& parts) : parts_(parts), lsa_size_(compute_lsa_size()) {
  for (int rank = 0; rank < parts_.options.nranks; rank++)
    if (parts_.gpu != nullptr && (rank == parts_.options.rank || parts_.gpu->reaches(rank)))
      members_.push_back(rank);
}

Windows::~Windows() = default;

std::vector<std::string> Windows::gather(const std::string& text) {
  if (parts_.options.nranks == 1) return {text};
  const uint64_t round = parts_.control.reserve();
  return parts_.control.all_gather(round, text, in_seconds(parts_.config.init_timeout_s));
}

void Windows::meet(const char* what) { gather(what); }

bool Windows::is_member(int peer) const {
  return std::binary_search(members_.begin(), members_.end(), peer);
}

size_t Windows::member_number(int peer) const {
  return static_cast<size_t>(std::lower_bound(members_.begin(), members_.end(), peer) -
                             members_.begin());
}

bool Windows::complete() const {
  for (int peer = 0; peer < parts_.options.nranks; peer++)
    if (parts_.gpu != nullptr && !is_member(peer) &&
        parts_.mesh.link_kind(peer) != LinkKind::kNetwork)
      return false;
  return true;
}

bool Windows::has_device_api() const {
  return parts_.gpu != nullptr && parts_.gpu->lsa() &&
         cuda::can_share_mappings(parts_.gpu->device());
}

void* Windows::add(void* base, size_t size, std::shared_ptr<void> owner) {
  auto window = std::make_unique<Window>();
  window->view = {0, static_cast<std::byte*>(base), size};
  window->owner = std::move(owner);
  share(*window);
  connect_hosts();
  void* handle = &window->device;
  try {
    // No rank writes into it before all know it.
    together("registering a window", [&] {
      if (parts_.gpu != nullptr) {
        if (device_ == nullptr)
          device_ = std::make_unique<cuda::DeviceWindows>(parts_.gpu->device());
        handle = device_->add(window->device, base, size);
      }
      std::lock_guard lock(mutex_);
      window->view.number = next_;
      windows_[handle] = std::move(window);
    });
  } catch (...) {
    remove(handle);  // it failed elsewhere
    throw;
  }
  next_++;
  return handle;
}

void Windows::together(const char* what, const std::function<void()>& work) {
  std::string failure;
  ncclResult_t code = ncclSuccess;
  try {
    work();
  } catch (const Error& error) {
    code = error.code();
    failure = error.what();
  } catch (const std::exception& error) {
    code = ncclSystemError;
    failure = error.what();
  }
  const std::vector<std::string> failures = gather(failure);
  if (code != ncclSuccess) fail(code, "{}", failure);
  for (size_t rank = 0; rank < failures.size(); rank++)
    if (!failures[rank].empty())
      fail(ncclRemoteError, "{} failed on rank {}: {}", what, rank, failures[rank]);
}

void Windows::connect_hosts() {
  if (remote_ == nullptr && !parts_.mesh.one_process())
    remote_ = std::make_unique<RemoteWrites>(*this, parts_.remote_memory());
}

std::shared_ptr<void> Windows::take() {
  auto kept = std::make_shared<Kept>();
  std::lock_guard lock(mutex_);
  kept->next = next_;
  kept->windows = std::move(windows_);
  kept->device = std::move(device_);
  windows_.clear();
  for (const auto& [handle, window] : kept->windows) {
    window->flat.reset();
    window->mapped.clear();
    window->offers.clear();
    window->why.clear();
    window->device = {};
  }
  return kept;
}

void Windows::restore(const std::shared_ptr<void>& taken) {
  auto& kept = *static_cast<Kept*>(taken.get());
  std::map<uint64_t, const void*> order;
  for (const auto& [handle, window] : kept.windows) order[window->view.number] = handle;
  std::string numbers;
  for (const auto& [number, handle] : order)
    numbers.append(reinterpret_cast<const char*>(&number), sizeof number);
  std::map<uint64_t, size_t> holders;
  for (const std::string& text : gather(numbers))
    for (size_t at = 0; at + sizeof(uint64_t) <= text.size(); at += sizeof(uint64_t)) {
      uint64_t number = 0;
      std::memcpy(&number, text.data() + at, sizeof number);
      holders[number]++;
    }
  next_ = kept.next;
  device_ = std::move(kept.device);
  bool any = false;
  for (const auto& [number, count] : holders) {
    const bool shared = count == static_cast<size_t>(parts_.options.nranks);
    any = any || shared;
    if (!order.contains(number)) continue;
    const void* handle = order[number];
    std::unique_ptr<Window>& window = kept.windows[handle];
    window->why = "another rank has removed its part";
    if (shared) window->why.clear();
    window->offers.resize(static_cast<size_t>(parts_.options.nranks));
    if (shared) share(*window);
    if (device_ != nullptr) device_->update(const_cast<void*>(handle), window->device);
    std::lock_guard lock(mutex_);
    windows_[handle] = std::move(window);
  }
  if (!any) return;
  connect_hosts();
  meet("registered");
}

// Tells the others where the memory is. Maps theirs where that is possible.
void Windows::share(Window& window) {
  WindowOffer mine;
  mine.address = reinterpret_cast<uint64_t>(window.view.base);
  mine.size = window.view.size;
  if (parts_.gpu == nullptr) {
    const SegmentRef ref = Segments::instance().find(window.view.base, window.view.size);
    mine.segment = ref.id;
    mine.segment_offset = ref.offset;
  } else {
    try {
      mine.lent =
          cuda::lend_window(parts_.gpu->device(), window.view.base, window.view.size, mine.why);
    } catch (const Error& error) {
      mine.why = error.what();
    }
  }
  std::vector<std::string> results;
  try {
    const std::vector<std::string> texts = gather(encode(mine));
    window.offers.clear();
    for (size_t rank = 0; rank < texts.size(); rank++) {
      const auto offer = decode_window_offer(texts[rank]);
      if (!offer) fail(ncclInvalidUsage, "rank {} made another call than this one", rank);
      window.offers.push_back(*offer);
      if (window.why.empty() && !offer->why.empty())
        window.why = fmt::format("rank {}: {}", rank, offer->why);
    }
    if (parts_.gpu != nullptr && window.why.empty()) map(window);
    // Nobody takes memory back before all have mapped it, and nobody uses it alone.
    results = gather(window.why);
  } catch (...) {
    take_back(mine.lent);
    throw;
  }
  take_back(mine.lent);
  for (const std::string& why : results)
    if (window.why.empty()) window.why = why;
  if (window.why.empty()) return;
  window.flat.reset();
  window.device = {};
  WEFT_INFO(kReg, "{}: kernels and one-sided calls cannot reach the window at {}: {}",
            parts_.context.label, static_cast<void*>(window.view.base), window.why);
}

void Windows::map(Window& window) {
  std::vector<cuda::FlatWindow::Member> team;
  for (const int rank : members_)
    team.push_back({window.offers[static_cast<size_t>(rank)].lent,
                    parts_.mesh.link_kind(rank) == LinkKind::kSelf ||
                        parts_.mesh.link_kind(rank) == LinkKind::kProcess});
  try {
    window.flat = std::make_unique<cuda::FlatWindow>(
        parts_.gpu->device(), team, [&](size_t member, uint64_t descriptor) {
          MemoryLink* link = parts_.mesh.link(members_[member]);
          return link != nullptr ? link->borrow(descriptor).first : Fd();
        });
  } catch (const Error& error) {
    window.why = fmt::format("rank {}: {}", parts_.options.rank, error.what());
    return;
  }
  const int first = parts_.options.rank - lsa_rank();
  window.device.lsa_base = window.flat->at(member_number(first));
  window.device.lsa_rank = lsa_rank();
  window.device.world_rank = parts_.options.rank;
  window.device.stride_4g = window.flat->stride_4g();
}

bool Windows::remove(void* handle) {
  std::unique_ptr<Window> window;
  {
    std::lock_guard lock(mutex_);
    const auto it = windows_.find(handle);
    if (it == windows_.end()) return false;
    window = std::move(it->second);
    windows_.erase(it);
  }
  if (device_ != nullptr) device_->remove(handle);
  return true;
}

Windows::Window& Windows::get(const void* handle) {
  const auto it = windows_.find(handle);
  if (it == windows_.end()) fail(ncclInvalidArgument, "the window is not one of this communicator");
  return *it->second;
}

Windows::View Windows::find(const void* handle) {
  std::lock_guard lock(mutex_);
  return get(handle).view;
}

size_t Windows::size_at(const void* handle, int peer) {
  std::lock_guard lock(mutex_);
  return get(handle).offers[static_cast<size_t>(peer)].size;
}

Windows::View Windows::numbered(uint64_t number) {
  std::lock_guard lock(mutex_);
  for (const auto& [handle, window] : windows_)
    if (window->view.number == number) return window->view;
  return {};
}

std::byte* Windows::at(const void* handle, int peer, std::string& why) {
  std::lock_guard lock(mutex_);
  Window& window = get(handle);
  const LinkKind kind = parts_.mesh.link_kind(peer);
  if (parts_.gpu != nullptr) {
    if (window.flat != nullptr && is_member(peer))
      return reinterpret_cast<std::byte*>(window.flat->at(member_number(peer)));
    why = !window.why.empty() ? window.why : fmt::format("rank {} is out of reach", peer);
    return nullptr;
  }
  const WindowOffer& offer = window.offers[static_cast<size_t>(peer)];
  if (kind == LinkKind::kSelf || kind == LinkKind::kProcess)
    return reinterpret_cast<std::byte*>(offer.address);
  MemoryLink* link = parts_.mesh.link(peer);
  if (offer.segment == 0 || link == nullptr) {
    why = fmt::format("the window of rank {} is not in memory from ncclMemAlloc", peer);
    return nullptr;
  }
  std::shared_ptr<const Mapping>& memory = window.mapped[peer];
  if (memory == nullptr) memory = link->keep(offer.segment);
  if (memory == nullptr) why = fmt::format("the memory of rank {} cannot be mapped", peer);
  return memory == nullptr ? nullptr
                           : const_cast<std::byte*>(memory->data()) + offer.segment_offset;
}

const cuda::DeviceWindow& Windows::device_window(const void* handle) {
  std::lock_guard lock(mutex_);
  const Window& window = get(handle);
  if (window.flat == nullptr) fail(ncclSystemError, "kernels cannot reach it: {}", window.why);
  return window.device;
}

cuda::DeviceWindowTable* Windows::table() {
  if (device_ == nullptr) device_ = std::make_unique<cuda::DeviceWindows>(parts_.gpu->device());
  return device_->table();
}

}  // namespace weft
