// Files of the cache folder. Several processes read and write them at once, and they may be
// damaged. Functions only; any thread may call.
#pragma once

#include <string>

namespace weft {

// Reads the whole file. Throws Error(ncclSystemError).
std::string read_cached(const std::string& path);

// Writes a temporary file and renames it, so readers see the old file or the new one. Creates the
// folder. Throws Error(ncclSystemError) and leaves nothing behind.
void write_cached(const std::string& path, const std::string& text);

}  // namespace weft
