// The part of gpu_launcher.h for WEFT_TRACE: every launch, with the plan that ran, its lanes,
// thread blocks and ports.
#include "src/base/trace.h"
#include "src/comm/gpu_launcher.h"
#include "src/comm/traced_plan.h"

namespace weft {

// 0: nothing is recorded.
int64_t GpuLauncher::begin_record() {
  if (!traced()) return 0;
  ran_ = {};
  gpu_.take_blocks();
  return trace::now();
}

// `number`: of the collective.
void GpuLauncher::record(std::span<const Call* const> calls, int64_t begin, uint64_t number) {
  if (begin == 0) return;
  trace::Span span;
  span.begin = begin;
  span.end = trace::now();
  span.track = context_.track.id();
  span.operation = number;
  span.plan = ran_.plan;
  span.means = ran_.means;
  span.blocks = gpu_.take_blocks();
  for (const Call* call : calls) {
    const bool message = call->kind == CollectiveKind::kSendRecv;
    span.name = !message ? name(call->kind).data() : call->sends ? "send" : "receive";
    span.to = message && call->sends ? call->root : -1;
    span.bytes = call->count * element_size(call->reduction.type);
    trace::add(span);
  }
}

const char* GpuLauncher::means_of(PlanPath path, const Program& program) const {
  return traced_means(name_of(path), program, [&](int peer, int, bool sends) {
    using Kind = TracedPort::Kind;
    if (mesh_.info(peer).host == mesh_.info(rank_).host)
      return TracedPort{gpu_.reaches(peer) ? Kind::kPeer : Kind::kHost};
    // Two connections carry all ports of a pair, over one NIC.
    return TracedPort{Kind::kNetwork,
                      nic_of(mesh_.network_links(), peer, NetworkLinks::kFirstLaneChannel, sends)};
  });
}

}  // namespace weft
