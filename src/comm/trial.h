// Times calls of a communicator, where init must choose between plans.
#pragma once

#include <cstddef>

#include "src/exec/cuda/gpu_executor.h"
#include "src/schedule/collective_kind.h"

namespace weft {

struct Call;
class Communicator;

// A buffer for trial calls, on the GPU where the communicator has one. One thread.
class Trial {
 public:
  // Where ranks of a process share a GPU, all must have made theirs before the first call: an
  // allocation may wait for kernels.
  Trial(Communicator& communicator, size_t bytes);

  // Seconds of one call in place, of an array of float32, by the plan that the communicator has
  // now. Collective. Throws Error if the call fails.
  double seconds(CollectiveKind kind, size_t bytes);
  // Of the fastest of a few.
  double best_seconds(CollectiveKind kind, size_t bytes);

 private:
  double on_host(const Call& call);
  double on_gpu(Call call);

  Communicator& communicator_;
  const cuda::OwnBuffer buffer_;
};

}  // namespace weft
