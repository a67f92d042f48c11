// See status.h.
#include "src/comm/status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <mutex>

#include "src/base/error.h"
#include "src/comm/handle.h"
#include "src/topology/formats/machine_json.h"
#include "src/transport/acceptor.h"

namespace weft {
namespace {

const char* name_of(OperationState::Phase phase) {
  switch (phase) {
    case OperationState::Phase::kRunning:
      return "running";
    case OperationState::Phase::kLaunched:
      return "launched";
    case OperationState::Phase::kDone:
      return "done";
    case OperationState::Phase::kFailed:
      return "failed";
    default:
      return "none";
  }
}

const char* name_of(CommState state) {
  switch (state) {
    case CommState::kInitializing:
      return "initializing";
    case CommState::kReady:
      return "ready";
    case CommState::kFailed:
      return "failed";
    case CommState::kFinalized:
      return "finalized";
    case CommState::kSuspending:
      return "suspending";
    case CommState::kSuspended:
      return "suspended";
    case CommState::kRevoked:
      return "revoked";
    default:
      return "destroyed";
  }
}

// In the order of ncclDataType_t and ncclRedOp_t.
std::string kind_of(const OperationState& state) {
  if (state.kind != CollectiveKind::kSendRecv) return std::string(name(state.kind));
  return state.sends ? "send" : "receive";
}

std::string operation_json(const OperationState& state) {
  const bool reduces = Collective{state.kind, 2, 0}.reduces();
  return fmt::format(
      R"({{"phase": "{}", "kind": "{}", "number": {}, "count": {}, "type": "{}", "bytes": {}, )"
      R"("op": "{}", "root": {}, "seconds": {:.3f}, "begun": {}, "together": {}}})",
      name_of(state.phase), kind_of(state), state.number, state.count, type_name(state.type),
      state.count * element_size(static_cast<ncclDataType_t>(state.type)),
      reduces ? operator_name(state.op) : "-", state.root, state.seconds, state.begun,
      state.together);
}

std::string wait_json(const OperationState& state, const Communicator& comm) {
  const PeerInfo& peer = comm.mesh().info(state.waits_for);
  return fmt::format(
      R"({{"for": {}, "cpu_node": {}, "to_send": {}, "seconds": {:.3f}, "lane": {}, "step": {}, )"
      R"("slice": {}, "pid": {}}})",
      state.waits_for, state.waits_for >= comm.nranks(), state.waits_to_send, state.waits_seconds,
      state.lane, state.step, state.slice, peer.pid);
}

// The part of a communicator that is complete: its operation and its fault.
std::string activity_json(ncclComm& comm) {
  try {
    const Use use(comm, false);
    std::string text;
    const OperationState state = use->context().activity.state();
    if (state.phase != OperationState::Phase::kNone)
      text += R"(, "operation": )" + operation_json(state);
    if (state.waits_for >= 0) text += R"(, "waits": )" + wait_json(state, *use);
    if (const std::string fault = use->faults().get().text; !fault.empty())
      text += R"(, "fault": )" + json_quoted(fault);
    return text;
  } catch (const Error&) {
    return "";  // it is not ready yet, or not any more
  }
}

std::string communicator_json(ncclComm& comm) {
  const CommState state = comm.state.load();
  int rank = -1, nranks = 0;
  {
    std::lock_guard lock(comm.mutex);
    rank = comm.rank;
    nranks = comm.nranks;
  }
  return fmt::format(
      R"({{"communicator": "{:016x}", "name": {}, "state": "{}", "rank": {}, "nranks": {}{}}})",
      comm.identity.load(), json_quoted(comm.config.name), name_of(state), rank, nranks,
      state == CommState::kInitializing ? "" : activity_json(comm));
}

std::string hostname() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

std::string status_json() {
  std::string communicators;
  for_each_handle([&](ncclComm& comm) {
    communicators += (communicators.empty() ? "" : ", ") + communicator_json(comm);
  });
  return fmt::format(R"({{"pid": {}, "host": {}, "communicators": [{}]}})", getpid(),
                     json_quoted(hostname()), communicators);
}

void serve_status() { Acceptor::instance().serve_status(status_json); }

}  // namespace weft
