// See flush.h.
#include "plugins/net_verbs/flush.h"

#include <cerrno>

#include "plugins/net_verbs/error_text.h"
#include "src/base/error.h"

namespace weft::net_verbs {

struct Flush::Loop {
  struct Destroy {
    void operator()(ibv_cq* queue) const { verbs().destroy_cq(queue); }
    void operator()(ibv_qp* pair) const { verbs().destroy_qp(pair); }
    void operator()(ibv_mr* memory) const { verbs().dereg_mr(memory); }
  };
  const Port* port = nullptr;
  // The destination of the reads. Nobody uses the value.
  std::unique_ptr<uint64_t> sink = std::make_unique<uint64_t>();
  std::unique_ptr<ibv_mr, Destroy> sink_memory;
  std::unique_ptr<ibv_cq, Destroy> done;
  std::unique_ptr<ibv_qp, Destroy> queue;  // destroyed first

  explicit Loop(const Port& rail) : port(&rail) {
    const std::string where = describe(rail.address);
    ibv_pd* pd = rail.hca->pd();
    sink_memory.reset(verbs().reg_mr(pd, sink.get(), sizeof *sink, IBV_ACCESS_LOCAL_WRITE));
    if (sink_memory == nullptr)
      fail(ncclSystemError, "{}: {}", where, explain_registration(errno, sizeof *sink, false));
    done.reset(verbs().create_cq(rail.hca->context(), kRequests, nullptr, nullptr, 0));
    if (done == nullptr) fail_errno(errno, "{} gives no completion queue", where);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = done.get();
    init.cap.max_send_wr = kRequests;
    init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    init.qp_type = IBV_QPT_RC;
    queue.reset(verbs().create_qp(pd, &init));
    if (queue == nullptr) fail_errno(errno, "{} gives no queue pair", where);
    ibv_qp_attr attributes{};
    const auto step = [&](int mask) {
      if (const int error = verbs().modify_qp(queue.get(), &attributes, mask); error != 0)
        fail_errno(error, "{}: the queue pair for flushes cannot be set up", where);
    };
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = rail.address.port;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    step(IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = static_cast<ibv_mtu>(rail.address.mtu);
    attributes.dest_qp_num = queue->qp_num;
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.port_num = rail.address.port;
    attributes.ah_attr.dlid = rail.address.lid;
    if (rail.address.ethernet != 0) {
      const Gid& gid = rail.address.gids[0];
      attributes.ah_attr.is_global = 1;
      std::copy(gid.bytes.begin(), gid.bytes.end(), attributes.ah_attr.grh.dgid.raw);
      attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid.index);
      attributes.ah_attr.grh.hop_limit = 255;
    }
    step(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.retry_cnt = 6;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 1;
    step(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC);
  }
};

Flush::Flush(std::span<const Port> rails) : rails_(rails), loops_(rails.size()) {
  for (Request& request : requests_) request.flush = this;
}

Flush::~Flush() = default;

Flush::Request* Flush::start(const void* data, const Registration& registration, uint32_t rails) {
  for (uint32_t r = 0; r < kRequests; r++) {
    Request& request = requests_[r];
    if (request.used) continue;
    request.open = 0;
    for (uint32_t l = 0; l < loops_.size(); l++) {
      if ((rails >> l & 1) == 0) continue;
      if (loops_[l] == nullptr) loops_[l] = std::make_unique<Loop>(rails_[l]);
      Loop& loop = *loops_[l];
      ibv_sge part{reinterpret_cast<uint64_t>(loop.sink.get()), 1, loop.sink_memory->lkey};
      ibv_send_wr read{}, *bad = nullptr;
      read.wr_id = r;
      read.sg_list = &part;
      read.num_sge = 1;
      read.opcode = IBV_WR_RDMA_READ;
      read.send_flags = IBV_SEND_SIGNALED;
      read.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(data);
      read.wr.rdma.rkey = registration.remote_key(l);
      if (const int error = ibv_post_send(loop.queue.get(), &read, &bad); error != 0)
        fail_errno(error, "{}: a flush cannot be posted", describe(loop.port->address));
      request.open++;
    }
    request.used = true;
    return &request;
  }
  return nullptr;
}

bool Flush::complete(Request& request) {
  for (const auto& made : loops_) {
    if (made == nullptr) continue;
    Loop& loop = *made;
    ibv_wc done{};
    while (ibv_poll_cq(loop.done.get(), 1, &done) > 0) {
      if (done.status != IBV_WC_SUCCESS)
        fail(ncclSystemError, "{}: a flush of GPU memory failed: {} ({})",
             describe(loop.port->address), explain(done.status).what,
             verbs().wc_status_str(done.status));
      requests_[done.wr_id].open--;
    }
  }
  if (request.open > 0) return false;
  request.used = false;
  return true;
}

}  // namespace weft::net_verbs
