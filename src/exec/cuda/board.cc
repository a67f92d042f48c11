// See board.h.
#include "src/exec/cuda/board.h"

#include <cstring>

namespace weft::cuda {

size_t Board::stride(int nranks) {
  const size_t bytes = (1 + kWords + static_cast<size_t>(nranks)) * sizeof(Word);
  return (bytes + 63) / 64 * 64;
}

size_t Board::bytes(int nranks, size_t slots) { return kHeadBytes + slots * stride(nranks); }

Board::Word* Board::words(size_t slot) const {
  return reinterpret_cast<Word*>(memory_ + kHeadBytes + slot * stride(nranks_));
}

// Readers take the words between two equal and even versions. An odd one means that the words
// change. Every word is stored after the odd version and before the even one.
uint64_t Board::publish(size_t slot, const BoardEntry& entry) {
  Word* to = words(slot);
  const uint64_t version = head().load(std::memory_order_relaxed) + 2;
  to[0].store(version - 1, std::memory_order_relaxed);
  uint64_t all[kWords] = {entry.base, entry.size, entry.region, entry.descriptor};
  static_assert(sizeof entry.handle == (kWords - 4) * sizeof all[0]);
  std::memcpy(all + 4, entry.handle, sizeof entry.handle);
  for (size_t i = 0; i < kWords; i++) to[1 + i].store(all[i], std::memory_order_release);
  to[0].store(version, std::memory_order_release);
  head().store(version, std::memory_order_release);
  return version;
}

bool Board::read(size_t slot, BoardEntry& entry) const {
  const Word* from = words(slot);
  const uint64_t version = from[0].load(std::memory_order_acquire);
  uint64_t all[kWords];
  for (size_t i = 0; i < kWords; i++) all[i] = from[1 + i].load(std::memory_order_acquire);
  if (version % 2 != 0 || from[0].load(std::memory_order_relaxed) != version) return false;
  entry.version = version;
  entry.base = all[0];
  entry.size = all[1];
  entry.region = all[2];
  entry.descriptor = all[3];
  std::memcpy(entry.handle, all + 4, sizeof entry.handle);
  return true;
}

// Versions are even: the last bit is free.
void Board::answer(size_t slot, int rank, uint64_t version, bool mapped) {
  words(slot)[1 + kWords + static_cast<size_t>(rank)].store(version | (mapped ? 0 : 1),
                                                            std::memory_order_release);
}

Board::Answer Board::answer_of(size_t slot, int rank, uint64_t version) const {
  const uint64_t word =
      words(slot)[1 + kWords + static_cast<size_t>(rank)].load(std::memory_order_acquire);
  if (word == version) return Answer::kMapped;
  return word == (version | 1) ? Answer::kRefused : Answer::kNone;
}

}  // namespace weft::cuda
