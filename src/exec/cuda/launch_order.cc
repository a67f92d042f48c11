// See launch_order.h.
#include "src/exec/cuda/launch_order.h"

#include "src/base/error.h"
#include "src/exec/cuda/events.h"

namespace weft::cuda {
namespace {

// Handles do not identify streams: CUDA reuses the handle of a destroyed stream, and
// cudaStreamPerThread is a different stream in every thread. Ids are unique. 0: unknown.
uint64_t stream_id(cudaStream_t stream) {
  unsigned long long id = 0;
  if (cudaStreamGetId(stream, &id) == cudaSuccess) return id + 1;
  cudaGetLastError();
  return 0;
}

}  // namespace

bool LaunchOrder::capturing(cudaStream_t stream, Capture& seen) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;  // unused, but the call fails without it
  const cudaError_t error =
      cudaStreamGetCaptureInfo(stream, &status, &seen.id, &seen.graph, &nodes, &edges, &count);
#else
  const cudaError_t error =
      cudaStreamGetCaptureInfo_v2(stream, &status, &seen.id, &seen.graph, &nodes, &count);
#endif
  // The legacy stream cannot be queried while another stream is captured. It is not captured
  // itself.
  if (error != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  if (status != cudaStreamCaptureStatusActive) return false;
  seen.last.assign(nodes, nodes + count);
  return true;
}

StreamGate::Pass LaunchOrder::begin(std::span<const cudaStream_t> streams) {
  const cudaStream_t stream = streams.front();
  StreamGate::Pass pass;
  Capture now;
  is_captured_ = capturing(stream, now);
  for (const cudaStream_t other : streams.subspan(1)) {
    Capture its;
    if (capturing(other, its) != is_captured_ || (is_captured_ && its.id != now.id))
      fail(ncclInvalidUsage,
           "streams of a group: either none is captured, or all are captured into one graph");
  }
  follows_own_ = is_captured_ && now.id == capture_.id && now.last == capture_.last;
  if (is_captured_) {
    begin_captured(stream, now);
  } else {
    const uint64_t id = stream_id(stream);
    // The other streams are only joined. Events do not make CUDA assign a queue.
    if (gate_.is_new(id)) pass = StreamGate::Pass::take();
    if (has_graphs_ || (called_ && (id == 0 || called_on_ != id)))
      check(cudaStreamWaitEvent(stream, order_, 0), "cudaStreamWaitEvent");
    called_ = true;
    called_on_ = id;
  }
  stream_ = stream;
  // In a graph a kernel may start early only directly behind one other kernel; on the legacy stream
  // never.
  may_start_early_ = streams.size() == 1 && stream != nullptr && stream != cudaStreamLegacy &&
                     (!is_captured_ || follows_kernel(stream));
  for (const cudaStream_t other : streams.subspan(1)) follow(stream, other, join_);
  return pass;
}

bool LaunchOrder::follows_kernel(cudaStream_t stream) const {
  Capture now;
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  return capturing(stream, now) && now.last.size() == 1 &&
         cudaGraphNodeGetType(now.last.front(), &type) == cudaSuccess &&
         type == cudaGraphNodeTypeKernel;
}

void LaunchOrder::begin_captured(cudaStream_t stream, const Capture& now) {
  if (now.id != capture_.id) {
    capture_ = {now.id, now.graph, {}, nullptr, {}, false};
    unseen_ = unseen_ || !mixing_;
    if (!mixing_) return;
    has_graphs_ = true;
    check(cudaStreamWaitEvent(stream, order_, cudaEventWaitExternal), "cudaStreamWaitEvent");
  } else if (!capture_.last.empty() && capture_.last != now.last) {
#if CUDART_VERSION >= 13000
    check(
        cudaStreamUpdateCaptureDependencies(stream, capture_.last.data(), nullptr,
                                            capture_.last.size(), cudaStreamAddCaptureDependencies),
        "ordering captured calls");
#else
    check(cudaStreamUpdateCaptureDependencies(stream, capture_.last.data(), capture_.last.size(),
                                              cudaStreamAddCaptureDependencies),
          "ordering captured calls");
#endif
  }
}

void LaunchOrder::end(std::span<const cudaStream_t> streams) {
  if (is_captured_) {
    end_captured();
  } else {
    // Recorded now and not when the next call needs it: the caller may destroy the stream in
    // between.
    check(cudaEventRecord(order_, stream_), "cudaEventRecord");
  }
  if (streams.size() < 2) return;
  check(cudaEventRecord(join_, stream_), "cudaEventRecord");
  for (const cudaStream_t other : streams.subspan(1))
    check(cudaStreamWaitEvent(other, join_, 0), "cudaStreamWaitEvent");
}

// One node of a graph records the event behind the last operation. Every call moves it.
void LaunchOrder::end_captured() {
  Capture now;
  if (!capturing(stream_, now)) return;
  capture_.last = now.last;
  if (!mixing_ || capture_.last.empty()) return;
  if (capture_.record == nullptr) {
    check(cudaGraphAddEventRecordNode(&capture_.record, capture_.graph, capture_.last.data(),
                                      capture_.last.size(), order_),
          "ordering captured calls");
  } else {
    const auto edges = [&](std::vector<cudaGraphNode_t>& from, auto change) {
      const std::vector<cudaGraphNode_t> to(from.size(), capture_.record);
#if CUDART_VERSION >= 13000
      check(change(capture_.graph, from.data(), to.data(), nullptr, from.size()),
            "ordering captured calls");
#else
      check(change(capture_.graph, from.data(), to.data(), from.size()), "ordering captured calls");
#endif
    };
    edges(capture_.record_by, cudaGraphRemoveDependencies);
    edges(capture_.last, cudaGraphAddDependencies);
  }
  capture_.record_by = capture_.last;
}

bool LaunchOrder::is_done() const { return cudaEventQuery(order_) == cudaSuccess; }

void LaunchOrder::synchronize() noexcept {
  if (called_ || has_graphs_) cudaEventSynchronize(order_);
  if (unseen_) cudaDeviceSynchronize();
  cudaGetLastError();
}

}  // namespace weft::cuda
