// The part of gpu_launcher.h for GPUs that cannot reach each other's memory, because they are on
// different hosts or peer-to-peer access does not work. Also for plans with CPU nodes. FIFOs and
// plans are those of host mode. Kernels run the programs, not CPU threads.
#include <algorithm>
#include <map>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/gpu_launcher.h"
#include "src/comm/host_tasks.h"
#include "src/exec/cuda/device_comm.h"
#include "src/exec/host/stream_traffic.h"
#include "src/transport/net_stream.h"
#include "src/transport/proxy.h"

namespace weft {

size_t GpuLauncher::port_number(int peer, int channel) const {
  return static_cast<size_t>(peer * ring_channels_ + channel);
}

void GpuLauncher::connect_rings() {
  std::vector<SendPort> sends;
  std::vector<RecvPort> receives;
  ring_channels_ = mesh_.plan_channels() + kChannels - kCollectiveChannels;
  std::vector<std::shared_ptr<const void>> owners = {mesh_.arenas()};
  for (int peer = 0; peer < nranks_ + nodes_.count(); peer++) {
    for (int channel = 0; channel < ring_channels_; channel++) {
      sends.push_back(mesh_.sender(peer, channel));
      receives.push_back(mesh_.receiver(peer, channel));
      for (NetStream* stream : {sends.back().stream, receives.back().stream}) {
        if (stream == nullptr) continue;
        owners.push_back(stream->memory());
        poll(stream->proxy());
      }
    }
  }
  gpu_.connect_rings(sends, receives, std::move(owners));
  nodes_.serve_gpus();
  plans_.check_for_kernels();
  rings_connected_ = true;
}

void GpuLauncher::disconnect() {
  rings_ = false;
  if (std::exchange(rings_connected_, false)) gpu_.disconnect_rings();
  stop_polling();
}

void GpuLauncher::launch_ring_collective(const Call& call, const Collective& collective,
                                         const Choice& choice, bool in_place) {
  const LoweredPlan& plan = plans_.get(choice, collective, in_place);
  cuda::GpuRingJob job;
  job.operation = operations_.build(call, plan.program, plan.tag);
  tell_observer(call, plan.program, job.operation);
  ran_ = {plan.traced, plan.means};
  if (plan.shape) {
    cuda::GpuRingExchange exchange{job.operation, *plan.shape, {}};
    for (int peer = 0; peer < nranks_; peer++)
      exchange.ports.push_back(port_number(peer, collective_channel(0)));
    if (gpu_.run_ring_exchange(exchange)) {
      if (context_.observer != nullptr) context_.observer->launched();
      return;
    }
  }
  const auto number = [&](const ProgramPort& port) {
    const int channel = collective_channel(port.channel);
    if (channel >= ring_channels_)
      fail(ncclInvalidUsage, "a schedule of more than {} channels needs GPUs that reach each other",
           mesh_.plan_channels());
    return port_number(port.peer, channel);
  };
  for (const ProgramPort& port : plan.program.sends) job.sends.push_back(number(port));
  for (const ProgramPort& port : plan.program.receives) job.receives.push_back(number(port));
  std::vector<cuda::GpuRingJob> jobs(plan.program.lanes.size(), job);
  for (size_t lane = 0; lane < jobs.size(); lane++) jobs[lane].lane = static_cast<uint16_t>(lane);
  // CPU nodes get their parts before the launch. A launch may wait for its own kernel or earlier
  // ones, and these wait for CPU nodes.
  add_cpu_parts(call, plan, job.operation.sequence, operations_, nodes_);
  nodes_.hand_over();
  if (!jobs.empty()) gpu_.run_rings(plan.program, jobs, jobs.size());
  if (context_.observer != nullptr) context_.observer->launched();
}

// A thread block does the messages to or from one peer, in order. Both ranks put messages into the
// same kernels: message_slots() between two ranks into each. Messages are bytes.
void GpuLauncher::launch_ring_send_recvs(std::span<const Call* const> calls) {
  using Chain = std::vector<cuda::GpuRingJob>;
  std::vector<std::map<std::pair<int, bool>, Chain>> kernels;  // by peer and direction
  std::map<std::pair<int, bool>, size_t> done;
  for (const Call* call : calls) {
    const std::pair<int, bool> way = {call->root, call->sends};
    const size_t kernel = done[way]++ / cuda::message_slots(nranks_);
    if (kernels.size() <= kernel) kernels.resize(kernel + 1);
    Call bytes = *call;
    bytes.count *= element_size(call->reduction.type);
    bytes.reduction.type = ncclInt8;
    cuda::GpuRingJob& job = kernels[kernel][way].emplace_back();
    const Program& program = plans_.half(call->sends);
    job.operation = operations_.build(bytes, program, 0);
    tell_observer(*call, program, job.operation);
    job.lane = call->sends ? 0 : 1;
    (call->sends ? job.sends : job.receives)
        .push_back(port_number(call->root, kPointToPointChannel));
  }
  for (const auto& chains : kernels) {
    Chain jobs;
    for (const auto& [way, chain] : chains) jobs.push_back(chain.front());
    size_t head = 0;
    for (const auto& [way, chain] : chains) {
      size_t last = head++;
      for (size_t i = 1; i < chain.size(); i++) {
        jobs[last].next = static_cast<uint16_t>(jobs.size());
        last = jobs.size();
        jobs.push_back(chain[i]);
      }
    }
    gpu_.run_rings(send_recv_program_, jobs, chains.size());
  }
  if (context_.observer != nullptr) context_.observer->launched();
}

void GpuLauncher::tell_observer(const Call& call, const Program& program,
                                const Operation& launched) {
  if (context_.observer == nullptr) return;
  if (captured_) return context_.observer->captured();
  const bool send_recv = call.kind == CollectiveKind::kSendRecv;
  std::vector<SendPort*> sends;
  std::vector<RecvPort*> receives;
  const auto peer_of = [&](const ProgramPort& port) { return send_recv ? call.root : port.peer; };
  const auto channel_of = [&](const ProgramPort& port) {
    return send_recv ? kPointToPointChannel : collective_channel(port.channel);
  };
  for (const ProgramPort& port : program.sends)
    sends.push_back(&mesh_.sender(peer_of(port), channel_of(port)));
  for (const ProgramPort& port : program.receives)
    receives.push_back(&mesh_.receiver(peer_of(port), channel_of(port)));
  Operation operation = launched;
  operation.sends = sends.data();
  operation.receives = receives.data();
  context_.observer->begins(&call, host::stream_traffic(operation));
}

// Makes one program whose lanes are those of both. Each lane keeps the ports of its own program.
Program GpuLauncher::merge_lanes(const Program& first, const Program& second) {
  Program both = first;
  const auto steps = static_cast<uint32_t>(first.steps.size()),
             operands = static_cast<uint32_t>(first.operands.size()),
             dependencies = static_cast<uint32_t>(first.dependencies.size());
  for (ProgramLane lane : second.lanes) {
    lane.first_step += steps;
    both.lanes.push_back(lane);
  }
  for (ProgramStep step : second.steps) {
    step.first_operand += operands;
    step.first_dependency += dependencies;
    both.steps.push_back(step);
  }
  both.operands.insert(both.operands.end(), second.operands.begin(), second.operands.end());
  both.dependencies.insert(both.dependencies.end(), second.dependencies.begin(),
                           second.dependencies.end());
  return both;
}

}  // namespace weft
