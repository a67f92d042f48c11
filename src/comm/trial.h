// Times calls of a communicator, where init must choose between plans.
#pragma once

#include <cstddef>
#include <memory>

#include "src/schedule/collective_kind.h"

namespace weft {

class Communicator;

// A buffer for trial calls: host memory in host mode, else device memory. One thread. On GPUs that
// ranks share, ranks must meet after they made it, before the first call, and after the last call:
// memory is not allocated and freed while kernels wait.
class Trial {
 public:
  Trial(Communicator& communicator, size_t bytes);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Seconds of one call in place, of an array of float32, by the plan that the communicator has
  // now. Collective. Throws Error if the call fails.
  double seconds(CollectiveKind kind, size_t bytes);
  // Of the fastest of a few.
  double best_seconds(CollectiveKind kind, size_t bytes);

 private:
  Communicator& communicator_;
  std::unique_ptr<std::byte[]> host_;
  std::byte* data_ = nullptr;
};

}  // namespace weft
