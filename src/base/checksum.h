// A checksum against damage on the way: CRC-32C in three streams, which keeps a core's CRC unit
// busy. It finds every change of up to three bits, and every burst of up to 32 bits. Other damage
// passes once in four billion times. It proves nothing about who made the data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

// One sum per third of the data, one of the rest, `number` and the size.
using Checksum = std::array<uint32_t, 4>;
Checksum checksum(const void* data, size_t size, uint64_t number);
// The same without the CPU's instruction. For CPUs that lack it, and for tests.
Checksum checksum_by_table(const void* data, size_t size, uint64_t number);

}  // namespace weft
