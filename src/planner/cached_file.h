// Files of the cache folder, which several processes read and write at once, and which anyone may
// have damaged. Functions only; any thread may call.
#pragma once

#include <string>

namespace weft {

// All of it. Throws Error(ncclSystemError).
std::string read_cached(const std::string& path);

// Writes beside it and renames, so that readers see the old file or the new one; makes the folder.
// Throws Error(ncclSystemError), and leaves nothing behind.
void write_cached(const std::string& path, const std::string& text);

}  // namespace weft
