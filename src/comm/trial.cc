// See trial.h.
#include "src/comm/trial.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "src/base/error.h"
#include "src/comm/communicator.h"

namespace weft {

double trial_seconds(Communicator& communicator, size_t floats) {
  constexpr int kTrials = 3;
  std::vector<float> data(floats, 0.0f);
  Call call;
  call.kind = CollectiveKind::kAllReduce;
  call.input = data.data();
  call.output = data.data();
  call.count = floats;
  double best = 0;
  for (int k = 0; k < kTrials; k++) {
    host::Batch batch;
    communicator.begin();
    communicator.add_to(batch, call);
    communicator.hand_over();
    const auto began = std::chrono::steady_clock::now();
    const host::Outcome outcome = batch.run(0);
    if (outcome.code != ncclSuccess)
      fail(outcome.code, "a trial of two plans failed: {}", outcome.text);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    best = k == 0 ? took.count() : std::min(best, took.count());
  }
  return best;
}

}  // namespace weft
