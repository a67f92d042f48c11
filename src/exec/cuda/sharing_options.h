// How a rank shares its memory, see registrations.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::cuda {

struct SharingOptions {
  bool automatic = true;     // also memory that nobody registered
  uint64_t most_bytes = 0;   // of such memory
  uint64_t least_bytes = 0;  // of such an allocation
  uint64_t least_used = 0;   // by a call, before memory that nobody registered is shared
  size_t slots = 0, regions = 0;
  // The ranks' numbers in the communicator, for logs.
  std::vector<int> ranks;
  // Memory that calls have used since is not given up for other memory.
  std::chrono::milliseconds idle{1000};
};

}  // namespace weft::cuda
