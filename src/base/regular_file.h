// Files that others may have put there. Reads take only regular files, only up to a size. Neither
// reads nor writes wait for the other end of a FIFO. Any thread may call them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "src/base/handles.h"

namespace weft {

// The whole content. Throws Error with the path and the reason: it cannot be opened, it is no
// regular file (a FIFO, a device, a folder), it is a link in a folder where others may write, or it
// has more than `most_bytes`.
std::string read_regular_file(const std::string& path, size_t most_bytes);

// The same, but empty if there is no such file or it may not be read.
std::optional<std::string> read_if_readable(const std::string& path, size_t most_bytes);

// What becomes of the content that a file already has.
enum class Content {
  kReplaced,
  kKept,  // and can be read; only regular files
};

// Makes the file if there is none. Throws Error with the path and the reason: it cannot be opened,
// it is a FIFO that nobody reads, or it is a link in a folder where others may write.
Fd open_to_write(const std::string& path, Content content = Content::kReplaced);

// Replaces the content. Throws Error as above, or if not all of the text can be written.
void write_whole_file(const std::string& path, const std::string& text);

}  // namespace weft
