// See checksum.h.
#include "src/base/checksum.h"

#include <sys/auxv.h>

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

constexpr uint32_t kCrc32cPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ ((crc & 1) != 0 ? kCrc32cPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

uint32_t step_by_table(uint32_t crc, uint64_t word) {
  for (int byte = 0; byte < 8; byte++, word >>= 8) crc = crc >> 8 ^ kCrcTable[(crc ^ word) & 0xff];
  return crc;
}

#if defined(__x86_64__)
bool has_crc_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
inline uint32_t step_by_instruction(uint32_t crc, uint64_t word) {
  uint64_t wide = crc;
  asm("crc32q %1, %0" : "+r"(wide) : "r"(word));
  return static_cast<uint32_t>(wide);
}
#elif defined(__aarch64__)
bool has_crc_instruction() {
  constexpr unsigned long kHwcapCrc32 = 1 << 7;
  return (getauxval(AT_HWCAP) & kHwcapCrc32) != 0;
}
inline uint32_t step_by_instruction(uint32_t crc, uint64_t word) {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  return crc;
}
#else
bool has_crc_instruction() { return false; }
inline uint32_t step_by_instruction(uint32_t crc, uint64_t word) {
  return step_by_table(crc, word);
}
#endif

uint64_t word_at(const std::byte* at, size_t bytes = sizeof(uint64_t)) {
  uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

template <uint32_t (*kStep)(uint32_t, uint64_t)>
Checksum sum_up(const void* data, size_t size, uint64_t number) {
  const auto* at = static_cast<const std::byte*>(data);
  const size_t third = size / 24 * 8;
  uint32_t a = ~0u, b = ~0u, c = ~0u, rest = ~0u;
  for (size_t i = 0; i < third; i += 8) {
    a = kStep(a, word_at(at + i));
    b = kStep(b, word_at(at + third + i));
    c = kStep(c, word_at(at + 2 * third + i));
  }
  for (size_t i = 3 * third; i < size; i += 8)
    rest = kStep(rest, word_at(at + i, std::min<size_t>(8, size - i)));
  rest = kStep(kStep(rest, number), size);
  return {a, b, c, rest};
}

}  // namespace

Checksum checksum(const void* data, size_t size, uint64_t number) {
  static const bool fast = has_crc_instruction();
  return fast ? sum_up<step_by_instruction>(data, size, number)
              : checksum_by_table(data, size, number);
}

Checksum checksum_by_table(const void* data, size_t size, uint64_t number) {
  return sum_up<step_by_table>(data, size, number);
}

}  // namespace weft
