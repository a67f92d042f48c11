// What a client of the RAS port says, and the answers. See ras.h.
#include <fmt/format.h>
#include <strings.h>

#include <cstring>

#include "src/comm/ras.h"

namespace weft {
namespace {

constexpr int kRasProtocol = 2;

// The rest of `line` behind `word`, in any case of letters; nullptr: it begins with something else.
const char* after(const std::string& line, const char* word) {
  const size_t size = std::strlen(word);
  return strncasecmp(line.c_str(), word, size) == 0 ? line.c_str() + size : nullptr;
}

}  // namespace

std::string RasSession::answer(const std::string& line) {
  if (after(line, "client protocol ") != nullptr)
    return fmt::format("SERVER PROTOCOL {}\n", kRasProtocol);
  if (const char* seconds = after(line, "timeout "); seconds != nullptr) {
    const size_t size = std::strlen(seconds);
    const bool number = size > 0 && std::strspn(seconds, "0123456789") == size;
    // Processes of one host answer at once, or not at all.
    return number ? "OK\n" : fmt::format("ERROR: Invalid timeout value {}\n", seconds);
  }
  if (const char* format = after(line, "set format "); format != nullptr) {
    const bool json = strcasecmp(format, "json") == 0;
    if (!json && strcasecmp(format, "text") != 0)
      return fmt::format("ERROR: Invalid format {}\n", format);
    json_ = json;
    return "OK\n";
  }
  if (strcasecmp(line.c_str(), "status") == 0 || strcasecmp(line.c_str(), "verbose status") == 0) {
    over_ = true;
    return status_(json_);
  }
  return fmt::format("ERROR: Unknown command {}\n", line);
}

}  // namespace weft
