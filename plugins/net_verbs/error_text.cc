// See error_text.h.
#include "plugins/net_verbs/error_text.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace weft::net_verbs {

Explanation explain(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return {"it succeeded", ""};
    case IBV_WC_LOC_LEN_ERR:
      return {"a message was longer than the memory posted for it", "a defect of this plugin"};
    case IBV_WC_LOC_QP_OP_ERR:
      return {"the device refused the request", "a defect of this plugin or of the driver"};
    case IBV_WC_LOC_PROT_ERR:
      return {"the memory to send from or to receive into is not registered",
              "a buffer was freed or deregistered while in use"};
    case IBV_WC_WR_FLUSH_ERR:
      return {"the request was dropped because the queue pair had failed before",
              "an earlier error, which names the cause"};
    case IBV_WC_BAD_RESP_ERR:
      return {"the peer's device answered what was not asked",
              "different driver or firmware versions"};
    case IBV_WC_LOC_ACCESS_ERR:
      return {"the peer wrote where it must not",
              "a buffer was freed or deregistered while in use"};
    case IBV_WC_REM_INV_REQ_ERR:
      return {"the peer's device refused the request",
              "the two sides use different versions or settings of the plugin"};
    case IBV_WC_REM_ACCESS_ERR:
      return {"the peer's device denied access to its memory",
              "the peer freed or deregistered a buffer while it was in use"};
    case IBV_WC_REM_OP_ERR:
      return {"the peer's device could not do it",
              "the peer's queue pair failed; its log says why"};
    case IBV_WC_RETRY_EXC_ERR:
      return {"the peer's device did not answer",
              "a cable, port or switch is down, the peer is gone, packets are lost (RoCE without "
              "PFC), or the RoCE address is the wrong one (NCCL_IB_GID_INDEX); NCCL_IB_TIMEOUT and "
              "NCCL_IB_RETRY_CNT say how long it is asked"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {"the peer had no receive posted for too long", "the peer's process hangs"};
    case IBV_WC_REM_ABORT_ERR:
      return {"the peer's device ended the request", "the peer is closing down"};
    case IBV_WC_FATAL_ERR:
      return {"the device failed", "a defect of the device or its driver; see dmesg"};
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {"the peer's answer did not come in time", "a cable, port or switch is down"};
    default:
      return {"the device reported an error", "a defect of the device or its driver; see dmesg"};
  }
}

bool is_link_trouble(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return true;
    default:
      return false;
  }
}

Explanation explain(ibv_event_type event) {
  switch (event) {
    case IBV_EVENT_CQ_ERR:
      return {"a completion queue overflowed", "a defect of this plugin"};
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      return {"a queue pair failed", "a work completion says why"};
    case IBV_EVENT_PATH_MIG_ERR:
      return {"the path could not be changed", "the other path is down too"};
    case IBV_EVENT_DEVICE_FATAL:
      return {"the device failed", "a defect of the device or its driver; see dmesg"};
    case IBV_EVENT_PORT_ACTIVE:
      return {"the port is up", "the cable or the switch is back"};
    case IBV_EVENT_PORT_ERR:
      return {"the port went down",
              "a cable was pulled, a switch restarts, or somebody took the "
              "interface down"};
    case IBV_EVENT_LID_CHANGE:
      return {"the port's address in the fabric changed", "the subnet manager was restarted"};
    case IBV_EVENT_PKEY_CHANGE:
      return {"the port's partition keys changed", "the subnet manager was reconfigured"};
    case IBV_EVENT_GID_CHANGE:
      return {"the port's RoCE addresses changed", "an IP address was added or removed"};
    case IBV_EVENT_SM_CHANGE:
      return {"the subnet manager changed", "it moved to another host"};
    default:
      return {nullptr, nullptr};
  }
}

std::string explain_registration(int error, size_t bytes, bool cuda) {
  std::string text = fmt::format("{} bytes of {} memory cannot be registered: {}", bytes,
                                 cuda ? "GPU" : "host", std::strerror(error));
  if (cuda && (error == EFAULT || error == EINVAL || error == EOPNOTSUPP))
    return text +
           " (the NIC cannot reach the GPU: is nvidia-peermem loaded, or the kernel one "
           "with dmabuf?)";
  rlimit limit{};
  if ((error == ENOMEM || error == EPERM || error == EAGAIN) &&
      getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += fmt::format(
        " (this process may lock {} KiB; RDMA needs more: ulimit -l unlimited, in "
        "a container --ulimit memlock=-1, in Slurm PropagateResourceLimits)",
        limit.rlim_cur >> 10);
  return text;
}

}  // namespace weft::net_verbs
