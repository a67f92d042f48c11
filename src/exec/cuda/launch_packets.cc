// Launches with the low-latency protocol: programs with FIFOs, and send/recv.
#include <algorithm>
#include <cstring>
#include <map>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"
#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/send_recv_arguments.h"

namespace weft::cuda {
namespace {

// Data per thread block before another block joins.
constexpr uint64_t kPacketWordsPerCta = 128;

bool fits(const Program& program) {
  const auto channels = [](const std::vector<ProgramPort>& ports) {
    return std::all_of(ports.begin(), ports.end(), [](const ProgramPort& port) {
      return port.channel >= 0 && port.channel < kSendRecvChannel;
    });
  };
  return program.lanes.size() == 1 && program.steps.size() <= kMaxSteps &&
         program.operands.size() <= kMaxOperands && !program.uniform_only &&
         channels(program.receives) && channels(program.sends) &&
         std::all_of(program.steps.begin(), program.steps.end(),
                     [](const ProgramStep& step) { return step.count <= 1; });
}

}  // namespace

bool GpuExecutor::takes_packets(const Program& program) const { return fits(program); }

std::shared_ptr<GpuPlan> GpuExecutor::prepare_packets(const Program& program, bool one_round) {
  State& s = *state_;
  if (one_round)
    if (auto plan = prepare_one_round(program)) return plan;
  if (!fits(program)) return nullptr;
  auto plan = std::make_shared<GpuPlan>();
  plan->kind = GpuPlan::Kind::kPackets;
  plan->collective = program.collective;
  plan->source = program;
  PacketArguments& a = plan->packet_arguments;
  a.mine = s.mailbox;
  a.ports = s.comm.ports;
  a.comm = s.comm;
  a.step_count = static_cast<uint16_t>(program.steps.size());
  a.operand_count = static_cast<uint16_t>(program.operands.size());
  std::vector<PacketStep> steps;
  std::vector<PacketOperand> operands;
  std::map<std::pair<uint16_t, bool>, uint16_t> messages;  // so far, by port and direction
  for (const ProgramStep& step : program.steps) {
    PacketStep& out = steps.emplace_back();
    out.raw_sources = step.raw_sources;
    out.first_operand = static_cast<uint16_t>(operands.size());
    out.run = step.run;
    out.sources = static_cast<uint8_t>(step.sources);
    out.destinations = static_cast<uint8_t>(step.destinations);
    out.completes = step.completes;
    for (uint32_t i = 0; i < static_cast<uint32_t>(step.sources + step.destinations); i++) {
      const ProgramOperand& from = program.operands[step.first_operand + i];
      PacketOperand& operand = operands.emplace_back();
      operand.kind = from.buffer == ProgramBuffer::kPeer      ? PacketOperand::kMessage
                     : from.buffer == ProgramBuffer::kScratch ? PacketOperand::kScratch
                                                              : PacketOperand::kMemory;
      if (operand.kind != PacketOperand::kMessage) continue;
      operand.receives = i < step.sources;
      const ProgramPort& port =
          (operand.receives ? program.receives : program.sends)[static_cast<size_t>(from.index)];
      operand.port = static_cast<uint16_t>(s.comm.port(port.peer, port.channel));
      operand.before = messages[{operand.port, operand.receives}]++;
      operand.base = operand.receives
                         ? first_slot(s.comm, s.options.rank, operand.port)
                         : first_slot(s.comm, port.peer, s.comm.port(s.options.rank, port.channel));
    }
  }
  for (PacketOperand& operand : operands)
    if (operand.kind == PacketOperand::kMessage)
      operand.per_slice = messages[{operand.port, operand.receives}];
  for (size_t n = 0; n < steps.size(); n++)
    for (size_t i = n; i < n + steps[n].run; i++)
      for (uint32_t o = 0; o < steps[i].sources; o++)
        steps[n].takes |= operands[steps[i].first_operand + o].kind == PacketOperand::kMessage;
  const size_t step_bytes = steps.size() * sizeof(PacketStep),
               operand_bytes = operands.size() * sizeof(PacketOperand);
  a.operands_at = static_cast<uint16_t>(step_bytes);
  std::memcpy(a.program_bytes, steps.data(), step_bytes);
  std::memcpy(a.program_bytes + step_bytes, operands.data(), operand_bytes);
  a.bytes = static_cast<uint16_t>(a.program_bytes + step_bytes + operand_bytes -
                                  reinterpret_cast<std::byte*>(&a));
  return plan;
}

void GpuExecutor::run_packets(GpuPlan& plan, const GpuCall& call) {
  State& s = *state_;
  PacketArguments& a = plan.packet_arguments;
  const Program& program = plan.source;
  const Collective& c = plan.collective;
  const auto chunks = static_cast<uint64_t>(program.chunks);
  const uint64_t element = element_size(call.reduction.type), all = call.count * element;
  const uint64_t chunk = round_up(ceil_div(all, chunks), 16);
  // The same on all ranks: how many words they send or receive in parallel.
  const bool whole = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kReduce ||
                     (c.kind == CollectiveKind::kAllReduce && chunks == 1);
  const uint64_t words = ceil_div(chunk, 8) * (whole ? 1 : static_cast<uint64_t>(c.nranks) - 1);
  const uint64_t ctas = std::clamp<uint64_t>(
      ceil_div(words, kPacketWordsPerCta), 1,
      std::min<uint64_t>(static_cast<uint64_t>(s.max_ctas), s.comm.packet_ctas));
  const uint64_t threads =
      std::clamp<uint64_t>(round_up(ceil_div(words, ctas), 32), 128, kPacketThreads);
  a.slice_bytes = std::min(chunk, ctas * kSlotBytes);
  if (program.scratch_chunks > 0)
    a.slice_bytes = std::min(
        a.slice_bytes, s.sizes.stage / static_cast<uint64_t>(program.scratch_chunks) / 64 * 64);
  a.part_bytes = static_cast<uint32_t>(round_up(ceil_div(a.slice_bytes, ctas), 16));
  a.slices = static_cast<uint32_t>(ceil_div(chunk, a.slice_bytes));
  a.reduction = call.reduction;
  a.signature = call.signature;
  a.comm.call = s.comm.call;
  auto* steps = reinterpret_cast<PacketStep*>(a.program_bytes);
  auto* operands = reinterpret_cast<PacketOperand*>(a.program_bytes + a.operands_at);
  for (size_t n = 0; n < program.steps.size(); n++) {
    const uint64_t from = static_cast<uint64_t>(program.steps[n].sub) % chunks * chunk;
    steps[n].bytes = program.steps[n].count == 0 || from >= all ? 0 : std::min(chunk, all - from);
  }
  for (size_t o = 0; o < program.operands.size(); o++) {
    const auto index = static_cast<uint64_t>(program.operands[o].index);
    const uint64_t at = index / chunks * call.stride * element + index % chunks * chunk;
    switch (program.operands[o].buffer) {
      case ProgramBuffer::kInput:
        operands[o].base = static_cast<std::byte*>(const_cast<void*>(call.input)) + at;
        break;
      case ProgramBuffer::kOutput:
        operands[o].base = static_cast<std::byte*>(call.output) + at;
        break;
      case ProgramBuffer::kScratch:
        operands[o].base = s.memory + s.comm.stage + index * a.slice_bytes;
        break;
      default:  // a message: set when the plan was made
        break;
    }
  }
  const Kernels kernels =
      c.reduces() ? reduction_kernels(call.reduction.type, call.reduction.op) : move_kernels();
  launch(kernels.packets, ctas, threads, &a, false);
}

// Between processes an unregistered send goes through a stage with a part per peer. The receiver
// reads it from the sender's memory.
void GpuExecutor::run_send_recvs(std::span<const GpuMessage> sends,
                                 std::span<const GpuMessage> receives) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  const auto nranks = static_cast<size_t>(s.options.nranks);
  const size_t part = s.comm.one_process ? SIZE_MAX : s.sizes.send_stage / nranks / 64 * 64;
  std::vector<std::vector<GpuMessage>> out = into_kernels(sends, s.options.nranks, part),
                                       in = into_kernels(receives, s.options.nranks, part);
  out.resize(std::max(out.size(), in.size()));
  in.resize(out.size());
  for (size_t k = 0; k < out.size(); k++) {
    std::vector<size_t> used(nranks, 0);  // bytes of the peers' parts of the stage
    launch_send_recvs(out[k], in[k], [&](const GpuMessage& m) {
      if (s.comm.one_process) return reinterpret_cast<uint64_t>(m.pointer);
      if (goes_in_packets(m.bytes)) return kPrivate;
      const uint64_t registered = s.place_of(m.pointer, m.bytes, m.peer);
      if (registered != kPrivate) return registered;
      const auto peer = static_cast<size_t>(m.peer);
      const uint64_t offset = s.comm.stage + s.sizes.stage + part * peer + used[peer];
      used[peer] += m.bytes;
      check(cudaMemcpyAsync(s.memory + offset, m.pointer, m.bytes, cudaMemcpyDeviceToDevice,
                            s.order->stream()),
            "copying to the stage");
      return offset;
    });
  }
}

template <typename Place>
void GpuExecutor::launch_send_recvs(std::span<const GpuMessage> sends,
                                    std::span<const GpuMessage> receives, Place place) {
  State& s = *state_;
  SendRecvArguments a;
  a.comm = s.comm;
  a.mine = s.mailbox;
  a.ports = s.comm.ports;
  const SendRecvBlocks blocks = {std::clamp(s.early_ctas, 1, static_cast<int>(s.comm.packet_ctas)),
                                 s.max_ctas, s.options.cta_bytes};
  for (const GpuMessage& m : sends)
    add_message(a, blocks, m.pointer, m.bytes, m.peer, place(m), true);
  for (const GpuMessage& m : receives) add_message(a, blocks, m.pointer, m.bytes, m.peer, 0, false);
  const uint32_t ctas = finish(a);
  const bool packets = all_in_packets(a);
  launch(send_recv_kernel_function(packets), ctas, s.threads, &a, packets && s.early_ctas > 0);
}

}  // namespace weft::cuda
