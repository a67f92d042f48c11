// See imports.h.
#include "src/exec/cuda/imports.h"

#include <algorithm>

#include "src/base/log.h"

namespace weft::cuda {
namespace {

constexpr std::chrono::milliseconds kLongestDelay{300};
constexpr int kMostTries = 1000;  // of mapping, one every few milliseconds

}  // namespace

Imports::Imports(int rank, std::span<const Board> boards, std::span<const uint64_t> processes,
                 const SharingOptions& options, std::shared_ptr<MemoryDriver> driver)
    : rank_(rank),
      slots_(options.slots),
      regions_(options.regions),
      ranks_(options.ranks),
      driver_(std::move(driver)) {
  for (size_t p = 0; p < boards.size(); p++)
    peers_.push_back({boards[p],
                      processes[p] == processes[static_cast<size_t>(rank)],
                      0,
                      std::vector<Mapped>(slots_),
                      {},
                      0,
                      false});
}

Imports::~Imports() {
  // Kernels of other ranks of this process may still run.
  driver_->when_quiet(
      [peers = std::make_shared<std::vector<Peer>>(std::move(peers_)), driver = driver_] {
        for (const Peer& peer : *peers) {
          if (peer.here) continue;
          for (const Mapped& mapped : peer.slots)
            if (mapped.at != 0) driver->unmap(mapped.entry, mapped.at);
          for (const auto& [number, base] : peer.regions) driver->unreserve(base, kRegionBytes);
        }
      });
}

void Imports::close(size_t peer, Mapped& mapped) {
  if (mapped.at != 0) {
    if (!peers_[peer].here) driver_->unmap(mapped.entry, mapped.at);
    mapped_--;
  }
  mapped = {};
}

// The table has an entry per allocation, or one for the region if there is any.
uint64_t Imports::map(size_t peer, const BoardEntry& entry, std::string& why) {
  Peer& from = peers_[peer];
  const uint64_t base = entry.base / kRegionBytes * kRegionBytes;
  if (entry.region == 0)
    return from.here ? entry.base : driver_->map(static_cast<int>(peer), entry, 0, why);
  uint64_t& region = from.regions[entry.region];
  if (region == 0) {
    region = from.here ? base : driver_->reserve(kRegionBytes);
    driver_->set_table(index(peer, slots_ + entry.region - 1), region);
  }
  if (region == 0) {
    from.regions.erase(entry.region);
    why = "no address range can be reserved";
    return 0;
  }
  const uint64_t at = region + (entry.base - base);
  return from.here ? at : driver_->map(static_cast<int>(peer), entry, at, why);
}

// Memory that the peer had at the same place before is mapped still.
bool Imports::is_taken(const Peer& peer, const BoardEntry& entry) {
  return std::any_of(peer.slots.begin(), peer.slots.end(), [&](const Mapped& mapped) {
    return mapped.at != 0 && mapped.entry.base < entry.base + entry.size &&
           entry.base < mapped.entry.base + mapped.entry.size;
  });
}

// True: the peer may be answered.
bool Imports::open(size_t peer, size_t slot, const BoardEntry& entry) {
  Peer& from = peers_[peer];
  Mapped& mapped = from.slots[slot];
  if (entry.size == 0) {
    mapped.entry = entry;
    return true;
  }
  if (is_taken(from, entry)) return false;
  std::string why;
  mapped.at = map(peer, entry, why);
  if (mapped.at == 0 && why.empty() && ++from.tries < kMostTries) return false;
  mapped.entry = entry;
  from.tries = 0;
  if (mapped.at != 0) {
    mapped_++;
    if (entry.region == 0) driver_->set_table(index(peer, slot), mapped.at);
    WEFT_INFO(kReg, "rank {}: {} MiB that rank {} shares are used where they are",
              label(static_cast<size_t>(rank_)), entry.size >> 20, label(peer));
    return true;
  }
  BoardEntry now;
  if (!from.board.read(slot, now) || now.version != entry.version) {
    mapped = {};  // it was withdrawn meanwhile
    return false;
  }
  if (!from.warned)
    WEFT_WARN("rank {} cannot map memory that rank {} shares, it is copied through a stage: {}",
              label(static_cast<size_t>(rank_)), label(peer), why);
  from.warned = true;
  return true;
}

bool Imports::may_close() {
  const auto now = std::chrono::steady_clock::now();
  if (!putting_off_) put_off_since_ = now;
  putting_off_ = !driver_->is_quiet() && now - put_off_since_ < kLongestDelay;
  return !putting_off_;
}

// Returns false if the board must be read again.
bool Imports::read(size_t peer, std::vector<std::pair<size_t, BoardEntry>>& changed) {
  bool complete = true;
  const Board& board = peers_[peer].board;
  for (size_t slot = 0; slot < slots_; slot++) {
    if (board.version(slot) == peers_[peer].slots[slot].entry.version) continue;
    BoardEntry entry;
    if (board.read(slot, entry)) {
      changed.emplace_back(slot, entry);
    } else {
      complete = false;
    }
  }
  return complete;
}

bool Imports::catch_up() {
  bool again = false, asked = false, closes = false;
  for (size_t p = 0; p < peers_.size(); p++) {
    Peer& peer = peers_[p];
    const uint64_t version = peer.board.version();
    if (static_cast<int>(p) == rank_ || version == peer.read) continue;
    std::vector<std::pair<size_t, BoardEntry>> changed;
    bool complete = read(p, changed);
    std::vector<std::pair<size_t, BoardEntry>> answered;
    // What is gone first: its place in a region may be taken again.
    std::erase_if(changed, [&](const auto& change) {
      Mapped& mapped = peer.slots[change.first];
      if (mapped.at == 0 || peer.here) {
        close(p, mapped);
        return false;
      }
      if (!asked) closes = may_close();
      asked = true;
      if (closes) close(p, mapped);
      if (!closes) complete = false;
      return !closes;
    });
    for (const auto& [slot, entry] : changed) {
      if (open(p, slot, entry)) {
        answered.emplace_back(slot, entry);
      } else {
        complete = false;
      }
    }
    driver_->flush_table();
    for (const auto& [slot, entry] : answered)
      peer.board.answer(slot, rank_, entry.version, entry.size == 0 || peer.slots[slot].at != 0);
    if (complete) peer.read = version;
    again = again || !complete;
  }
  return again;
}

}  // namespace weft::cuda
