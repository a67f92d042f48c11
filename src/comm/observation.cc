// See observation.h.
#include "src/comm/observation.h"

#include "src/base/trace.h"

namespace weft {

void Observation::begin() {
  begun_ = true;
  if (traced(comm_)) begin_ = trace::now();
  if (comm_.profiler != nullptr) comm_.profiler->start(calls_, comm_.impl->on_gpu());
}

// nullptr: plans are not chosen for it.
const char* Observation::plan_of(const Call& call) const {
  if (call.kind == CollectiveKind::kSendRecv || call.irregular != nullptr || call.count == 0)
    return nullptr;
  const Collective collective{call.kind, comm_.nranks, call.root};
  const PlanCall asked = plan_call(collective, call, comm_.rank, false);
  return trace::keep(comm_.impl->chooser().choose(asked).name);
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
    span.plan = plan_of(*call);
    trace::add(span);
  }
}

}  // namespace weft
