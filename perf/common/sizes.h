// Sizes on the command line: "8", "4K", "1.5M", "2G" are bytes in powers of 1024.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace weft::perf {

std::optional<size_t> parse_size(const std::string& text);
// "64 KiB" for exact multiples, otherwise plain bytes.
std::string describe_size(size_t bytes);

}  // namespace weft::perf
