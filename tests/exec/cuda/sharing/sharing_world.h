// Ranks that share memory through boards, with a fake device.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/registrations.h"
#include "tests/exec/cuda/sharing/fake_memory.h"

namespace weft::test {

inline constexpr uint64_t kMiB = 1 << 20;

// Waits for what a background thread does.
template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

struct SharingWorld {
  static cuda::SharingOptions usual() {
    cuda::SharingOptions options;
    options.most_bytes = 1024 * kMiB;
    options.least_bytes = kMiB;
    options.slots = 512;
    options.regions = 4;
    return options;
  }

  // `processes`: of each rank; empty: one each.
  explicit SharingWorld(int n, const cuda::SharingOptions& chosen = usual(),
                        std::vector<uint64_t> processes = {})
      : options(chosen) {
    const size_t places = chosen.slots + chosen.regions;
    std::vector<std::byte*> views;
    for (int rank = 0; rank < n; rank++) {
      boards.emplace_back(cuda::Board::bytes(n, chosen.slots) / sizeof(uint64_t) + 1);
      if (static_cast<int>(processes.size()) < n) processes.push_back(static_cast<uint64_t>(rank));
      drivers.push_back(std::make_shared<FakeMemory>(device, static_cast<size_t>(n) * places));
    }
    for (auto& board : boards) views.push_back(reinterpret_cast<std::byte*>(board.data()));
    for (int rank = 0; rank < n; rank++)
      ranks.push_back(std::make_unique<cuda::Registrations>(rank, views, processes, chosen,
                                                            drivers[static_cast<size_t>(rank)]));
  }

  FakeMemory& memory(int rank) { return *drivers[static_cast<size_t>(rank)]; }
  // One launch with one buffer.
  uint64_t place(int rank, uint64_t address, uint64_t size, int peer = -1, bool captured = false) {
    cuda::Registrations& own = *ranks[static_cast<size_t>(rank)];
    own.begin_launch(captured);
    const uint64_t found = own.place(reinterpret_cast<const void*>(address), size, peer);
    own.end_launch(nullptr);
    return found;
  }
  // The other ranks launch, too, and see what is new.
  bool becomes_shared(int rank, uint64_t address, uint64_t size, int peer = -1) {
    return eventually([&] {
      for (int other = 0; other < static_cast<int>(ranks.size()); other++)
        if (other != rank) place(other, 1, 1);
      return place(rank, address, size, peer) != cuda::kPrivate;
    });
  }
  size_t number(int owner, uint64_t place) const {
    return static_cast<size_t>(owner) * (options.slots + options.regions) +
           (place >> cuda::kOffsetBits) - 1;
  }
  static uint64_t offset(uint64_t place) {
    return place & ((uint64_t{1} << cuda::kOffsetBits) - 1);
  }
  uint64_t read(int reader, int owner, uint64_t place) {
    const uint64_t seen = memory(reader).start_reading(number(owner, place), offset(place));
    memory(reader).end_reading(number(owner, place), offset(place));
    return seen;
  }

  const cuda::SharingOptions options;
  FakeDevice device;
  std::vector<std::vector<uint64_t>> boards;
  std::vector<std::shared_ptr<FakeMemory>> drivers;
  std::vector<std::unique_ptr<cuda::Registrations>> ranks;
};

}  // namespace weft::test
