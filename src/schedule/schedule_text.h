// Shared by the readers of schedule files: positions in a text, and limits. The limits keep a
// hostile file from costing more than its size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// Upper limits of a file. verify() bounds the product of ranks and chunks.
inline constexpr int64_t kMostFileRanks = 65536;
inline constexpr int64_t kMostFileChunks = 1 << 24;    // per buffer of a rank
inline constexpr int64_t kMostFileChannels = 1 << 10;  // channel numbers of a FIFO
inline constexpr int64_t kMostFileCodecs = 255;

// 1 for the first line.
int line_at(std::string_view text, size_t offset);

// Offset of the first byte that is not UTF-8, npos if there is none.
size_t first_not_utf8(std::string_view text);

// Part of a file for an error text: control characters replaced, shortened to a few words.
// excerpt() adds quotes.
std::string printable(std::string_view text);
std::string excerpt(std::string_view text);

}  // namespace weft
