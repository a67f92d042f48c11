// See observation.h.
#include "src/comm/observation.h"

#include "src/base/trace.h"

namespace weft {

void Observation::begin() {
  begun_ = true;
  if (traced(comm_)) begin_ = trace::now();
  if (comm_.profiler != nullptr) comm_.profiler->start(calls_, comm_.impl->on_gpu());
}

void Observation::end() {
  if (comm_.profiler != nullptr) comm_.profiler->stop();
  if (begin_ == 0) return;
  trace::Span span;
  span.begin = begin_;
  span.end = trace::now();
  span.track = comm_.impl->context().track.id();
  for (const Call* call : calls_) {
    span.name = call->kind != CollectiveKind::kSendRecv ? name(call->kind).data()
                : call->sends                           ? "send"
                                                        : "receive";
    span.to = call->kind == CollectiveKind::kSendRecv && call->sends ? call->root : -1;
    span.bytes = call->count * element_size(call->reduction.type);
    trace::add(span);
  }
}

}  // namespace weft
