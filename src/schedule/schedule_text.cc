// See schedule_text.h.
#include "src/schedule/schedule_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

int line_at(std::string_view text, size_t offset) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(offset, text.size()));
  return 1 + static_cast<int>(std::count(text.begin(), end, '\n'));
}

size_t first_not_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      i++;
      continue;
    }
    const size_t more = lead >= 0xc2 && lead <= 0xdf   ? 1
                        : lead >= 0xe0 && lead <= 0xef ? 2
                        : lead >= 0xf0 && lead <= 0xf4 ? 3
                                                       : 0;
    if (more == 0 || i + more >= text.size()) return i;
    for (size_t k = 1; k <= more; k++)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return i;
    const auto second = static_cast<unsigned char>(text[i + 1]);
    // Overlong forms, halves of surrogate pairs, and values beyond the last code point.
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
      return i;
    i += more + 1;
  }
  return std::string_view::npos;
}

std::string printable(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string out;
  for (const char c : text.substr(0, kMost))
    out += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f ? '?' : c;
  return out + (text.size() > kMost ? "..." : "");
}

std::string excerpt(std::string_view text) { return fmt::format("'{}'", printable(text)); }

}  // namespace weft
