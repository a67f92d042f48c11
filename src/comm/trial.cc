// See trial.h.
#include "src/comm/trial.h"

#include <algorithm>
#include <chrono>

#include "src/base/error.h"
#include "src/comm/communicator.h"

namespace weft {
namespace {

Call trial_call(CollectiveKind kind, size_t bytes, int rank, int nranks, std::byte* data) {
  const Collective collective{kind, nranks, 0};
  Call call;
  call.kind = kind;
  call.count = bytes / sizeof(float) / static_cast<size_t>(collective.array_blocks());
  const size_t own = static_cast<size_t>(rank) * call.count * sizeof(float);
  call.input = data + (kind == CollectiveKind::kAllGather ? own : 0);
  call.output = data + (kind == CollectiveKind::kReduceScatter ? own : 0);
  return call;
}

void run_on_host(Communicator& communicator, host::Batch& batch) {
  communicator.hand_over();
  const host::Outcome outcome = batch.run(0);
  if (outcome.code != ncclSuccess)
    fail(outcome.code, "a trial of two plans failed: {}", outcome.text);
}

}  // namespace

Trial::Trial(Communicator& communicator, size_t bytes)
    : communicator_(communicator), data_(std::make_unique<std::byte[]>(bytes)) {}

double Trial::seconds(CollectiveKind kind, size_t bytes) {
  using Clock = std::chrono::steady_clock;
  const Call call =
      trial_call(kind, bytes, communicator_.rank(), communicator_.nranks(), data_.get());
  host::Batch batch;
  communicator_.begin();
  communicator_.add_to(batch, call);
  const Clock::time_point began = Clock::now();
  run_on_host(communicator_, batch);
  return std::chrono::duration<double>(Clock::now() - began).count();
}

double Trial::best_seconds(CollectiveKind kind, size_t bytes) {
  constexpr int kTrials = 3;
  double best = seconds(kind, bytes);
  for (int k = 1; k < kTrials; k++) best = std::min(best, seconds(kind, bytes));
  return best;
}

}  // namespace weft
