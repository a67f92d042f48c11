// What ranks tell each other when they register a window together.
#pragma once

#include <optional>
#include <string>

#include "src/exec/cuda/flat_window.h"

namespace weft {

struct WindowOffer {
  uint64_t address = 0, size = 0;
  // Host mode: where in a segment of ncclMemAlloc the window lies; 0: in none.
  uint64_t segment = 0, segment_offset = 0;
  // GPUs: what peers of the host map. `why`: the reason if they cannot.
  cuda::LentWindow lent;
  std::string why;
};

std::string encode(const WindowOffer& offer);
// Empty: the text is something else.
std::optional<WindowOffer> decode_window_offer(const std::string& text);

}  // namespace weft
