// Times calls of a communicator, where init must choose between plans.
#pragma once

#include <cstddef>
#include <memory>

#include "src/schedule/collective_kind.h"

namespace weft {

class Communicator;

// A buffer for trial calls. Host mode, one thread.
class Trial {
 public:
  Trial(Communicator& communicator, size_t bytes);

  // Seconds of one call in place, of an array of float32, by the plan that the communicator has
  // now. Collective. Throws Error if the call fails.
  double seconds(CollectiveKind kind, size_t bytes);
  // Of the fastest of a few.
  double best_seconds(CollectiveKind kind, size_t bytes);

 private:
  Communicator& communicator_;
  const std::unique_ptr<std::byte[]> data_;
};

}  // namespace weft
