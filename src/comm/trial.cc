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

using Clock = std::chrono::steady_clock;

double since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

cuda::OwnBuffer buffer_of(Communicator& communicator, size_t bytes) {
  if (communicator.on_gpu()) return communicator.gpu()->own_buffer(bytes);
  const std::shared_ptr<std::byte[]> memory = std::make_unique<std::byte[]>(bytes);
  return {memory.get(), nullptr, memory};
}

}  // namespace

Trial::Trial(Communicator& communicator, size_t bytes)
    : communicator_(communicator), buffer_(buffer_of(communicator, bytes)) {}

double Trial::on_host(const Call& call) {
  host::Batch batch;
  communicator_.begin();
  communicator_.add_to(batch, call);
  const Clock::time_point began = Clock::now();
  run_on_host(communicator_, batch);
  return since(began);
}

// On a stream of the communicator: the caller's may be captured, or wait for something.
double Trial::on_gpu(Call call) {
  call.stream = buffer_.stream;
  const Call* const calls[] = {&call};
  const Clock::time_point began = Clock::now();
  communicator_.launch(calls);
  communicator_.gpu()->synchronize();
  const double seconds = since(began);
  communicator_.poll_gpu();  // a kernel that gave up is done, too
  communicator_.check();
  return seconds;
}

double Trial::seconds(CollectiveKind kind, size_t bytes) {
  const Call call =
      trial_call(kind, bytes, communicator_.rank(), communicator_.nranks(), buffer_.data);
  return communicator_.on_gpu() ? on_gpu(call) : on_host(call);
}

double Trial::best_seconds(CollectiveKind kind, size_t bytes) {
  constexpr int kTrials = 3;
  double best = seconds(kind, bytes);
  for (int k = 1; k < kTrials; k++) best = std::min(best, seconds(kind, bytes));
  return best;
}

}  // namespace weft
