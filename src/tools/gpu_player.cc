// See gpu_player.h.
#include "src/tools/gpu_player.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "src/base/error.h"

namespace weft {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(10);
constexpr uint64_t kPiece = cuda::RankDevice::kStagingBytes / sizeof(uint32_t);

uint32_t* elements_of(std::span<std::byte> bytes) {
  return reinterpret_cast<uint32_t*>(bytes.data());
}

}  // namespace

void ask_for_hardware_queues() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", 0);
}

void require_gpu() {
  if (cuda::device_count() == 0)
    fail(ncclInvalidUsage,
         "there is no GPU to run on: no driver, no device, a build without CUDA, or WEFT_HOST_MODE "
         "is set");
}

int device_of_rank(int rank) { return rank % cuda::device_count(); }

GpuPlayer::GpuPlayer(Communicator& communicator, cuda::RankDevice& device)
    : comm_(communicator), device_(device), watch_([this](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          comm_.poll_gpu();
          std::this_thread::sleep_for(kPollInterval);
        }
      }) {
  device_.make_current();
}

void GpuPlayer::take(const PlayedCall& call) {
  if (call.elements() * sizeof(uint32_t) > device_.size())
    fail(ncclInternalError, "{} bytes are too few for a call", device_.size());
  played_ = &call;
}

void GpuPlayer::fill() {
  for (uint64_t at = 0; at < played_->elements(); at += kPiece) {
    const uint64_t n = std::min(kPiece, played_->elements() - at);
    played_->fill(at, {elements_of(device_.staging()), n});
    device_.upload(at * sizeof(uint32_t), n * sizeof(uint32_t));
  }
}

Call GpuPlayer::call() {
  Call call = played_->call(static_cast<uint32_t*>(device_.data()));
  call.stream = device_.stream();
  return call;
}

void GpuPlayer::launch() {
  const Call one = call();
  const Call* const calls[] = {&one};
  comm_.launch(calls);
}

void GpuPlayer::wait() {
  device_.wait();
  comm_.poll_gpu();
  comm_.check();
}

void GpuPlayer::run() {
  launch();
  wait();
}

uint64_t GpuPlayer::count_wrong_in(uint64_t first, uint64_t end) {
  uint64_t wrong = 0;
  for (uint64_t at = first; at < end; at += kPiece) {
    const uint64_t n = std::min(kPiece, end - at);
    device_.download(at * sizeof(uint32_t), n * sizeof(uint32_t));
    wrong += played_->count_wrong(at, {elements_of(device_.staging()), n});
  }
  return wrong;
}

uint64_t GpuPlayer::count_wrong() {
  return count_wrong_in(played_->output_at(), played_->output_at() + played_->outputs());
}

uint64_t GpuPlayer::count_wrong_at_ends(uint64_t most) {
  const uint64_t first = played_->output_at(), end = first + played_->outputs();
  if (played_->outputs() <= 2 * most) return count_wrong_in(first, end);
  return count_wrong_in(first, first + most) + count_wrong_in(end - most, end);
}

}  // namespace weft
