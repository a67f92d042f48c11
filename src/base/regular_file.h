// Reads files that others may have put there: only regular files, only up to a size, never waiting.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace weft {

// The whole content. Throws Error with the path and the reason: it cannot be opened, it is no
// regular file (a FIFO, a device, a folder), it is a link in a folder where others may write, or it
// has more than `most_bytes`.
std::string read_regular_file(const std::string& path, size_t most_bytes);

// The same, but empty if there is no such file or it may not be read.
std::optional<std::string> read_if_readable(const std::string& path, size_t most_bytes);

}  // namespace weft
