// A rank's board: memory that the ranks of a host share. The rank lists the allocations there that
// its peers may map. Peers answer beside each entry.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::cuda {

// An allocation as its owner describes it.
struct BoardEntry {
  uint64_t version = 0;         // of the entry; 0: never used
  uint64_t base = 0, size = 0;  // size 0: withdrawn
  // 0: mapped alone, by its CUDA IPC handle. Otherwise the number of its region, from 1 on: peers
  // map all allocations of a region into one address range, by descriptors.
  uint64_t region = 0;
  uint64_t descriptor = 0;  // see Descriptors
  char handle[64] = {};
};

// A view of one board. One thread at a time publishes; any thread of any process reads and answers.
class Board {
 public:
  enum class Answer : uint8_t { kNone, kMapped, kRefused };

  static size_t bytes(int nranks, size_t slots);
  // Memory that nobody has used before must be zero.
  Board(std::byte* memory, int nranks) : memory_(memory), nranks_(nranks) {}

  // Changes whenever an entry changes.
  uint64_t version() const { return head().load(std::memory_order_acquire); }
  // Returns the version of the entry.
  uint64_t publish(size_t slot, const BoardEntry& entry);
  // Of an entry. Odd: it is being written.
  uint64_t version(size_t slot) const { return words(slot)->load(std::memory_order_acquire); }
  // False while the entry is being written. Then the board's version changes once more.
  bool read(size_t slot, BoardEntry& entry) const;

  void answer(size_t slot, int rank, uint64_t version, bool mapped);
  Answer answer_of(size_t slot, int rank, uint64_t version) const;

 private:
  using Word = std::atomic<uint64_t>;
  static constexpr size_t kWords = 12, kHeadBytes = 64;  // base, size, region, descriptor, handle
  static size_t stride(int nranks);
  Word& head() const { return *reinterpret_cast<Word*>(memory_); }
  // The version, kWords words, and an answer of every rank.
  Word* words(size_t slot) const;

  std::byte* memory_;
  int nranks_;
};

}  // namespace weft::cuda
