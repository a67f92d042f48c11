// Launches: plans with their geometry, and send/recv.
#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"
#include "src/exec/cuda/kernels.h"

namespace weft::cuda {
namespace {

// The low-latency protocol: data per thread block before another one joins.
constexpr uint64_t kWordsPerCta = 128;
constexpr uint64_t kPairCtaBytes = 256;  // there may be many messages
constexpr size_t kPackedPair = 32 << 10;

bool is_packed(size_t message_bytes) { return message_bytes <= kPackedPair; }

// Ports become ranks and channels again: tokens and packets go to mailboxes.
void translate(const Program& program, std::vector<ProgramStep>& steps,
               std::vector<ProgramOperand>& operands) {
  for (ProgramStep step : program.steps) {
    const uint32_t first = step.first_operand;
    step.first_operand = static_cast<uint32_t>(operands.size());
    steps.push_back(step);
    for (uint32_t i = 0; i < static_cast<uint32_t>(step.sources + step.destinations); i++) {
      ProgramOperand operand = program.operands[first + i];
      if (operand.buffer == ProgramBuffer::kPeer) {
        const auto& ports = i < step.sources ? program.receives : program.sends;
        const ProgramPort& port = ports[static_cast<size_t>(operand.index)];
        operand.index = port.peer;
        operand.owner = static_cast<int16_t>(port.channel);
      }
      operands.push_back(operand);
    }
  }
}

bool fits(const Program& program, bool packed, size_t steps, size_t operands) {
  if (program.lanes.size() != 1 || steps > kMaxSteps || operands > kMaxOperands ||
      !program.dependencies.empty())
    return false;
  for (const ProgramStep& step : program.steps)
    if (step.sources > kMaxRanks || step.destinations > kMaxRanks) return false;
  if (!packed) return true;
  if (program.max_step_chunks > 16) return false;
  for (const auto* ports : {&program.receives, &program.sends})
    for (const ProgramPort& port : *ports)
      if (port.channel < 0 || port.channel >= kPairChannel) return false;
  return true;
}

// Steps that start with all ranks meeting: the announcement does that.
uint32_t opening_meeting(const Program& program) {
  const auto& steps = program.steps;
  return steps.size() > 1 && steps[0].count == 0 && steps[1].count == 0 &&
                 steps[0].destinations > 0 && steps[1].sources > 0
             ? 2
             : 0;
}

// Cuts the call's blocks into chunks, those into slices, and those into a part per thread block.
void cut(StepRange& range, const GpuPlan::Form& form, uint64_t count, uint32_t element,
         uint64_t capacity, uint32_t ctas) {
  const auto chunks = static_cast<uint64_t>(range.chunks);
  const uint64_t unit = form.uniform_only ? 1 : std::max<uint64_t>(1, 64 / element);
  range.chunk = round_up(ceil_div(count, chunks), unit);
  range.slice = 0;
  range.part = 0;
  range.slices = 1;
  if (range.protocol == Protocol::kReach) return;
  const uint64_t grain = std::max<uint64_t>(1, 16 / element);
  range.slice = std::min(range.chunk, std::max(grain, capacity / grain * grain));
  range.part = round_up(ceil_div(range.slice, ctas), grain);
  range.slices = std::max<uint64_t>(1, ceil_div(range.chunk, std::max<uint64_t>(1, range.slice)));
}

}  // namespace

std::shared_ptr<GpuPlan> GpuExecutor::prepare(const Program& program, bool packed,
                                              const Program* fallback) {
  State& s = *state_;
  const size_t more_steps = fallback != nullptr ? fallback->steps.size() : 0,
               more_operands = fallback != nullptr ? fallback->operands.size() : 0;
  if (!fits(program, packed, program.steps.size() + more_steps,
            program.operands.size() + more_operands) ||
      (fallback != nullptr && !fits(*fallback, false, more_steps, more_operands)))
    return nullptr;
  auto plan = std::make_shared<GpuPlan>();
  KernelArguments& a = plan->arguments;
  plan->collective = program.collective;
  plan->reduces = program.collective.reduces();
  plan->program = {program.scratch_chunks, program.max_step_chunks, program.uniform_only};
  a.mine = s.mailbox;
  a.ports = packed ? s.comm.ports : 0;
  a.comm = s.comm;
  const uint32_t opening = packed ? 0 : opening_meeting(program);
  a.program.first = opening;
  a.program.count = static_cast<uint32_t>(program.steps.size()) - opening;
  a.program.chunks = program.chunks;
  a.program.protocol = packed                       ? Protocol::kPacked
                       : program.scratch_chunks > 0 ? Protocol::kStage
                                                    : Protocol::kReach;
  std::vector<ProgramStep> steps;
  std::vector<ProgramOperand> operands;
  translate(program, steps, operands);
  if (packed)
    for (ProgramStep& step : steps)
      if (step.count != 1) step.run = 1;
  if (fallback != nullptr) {
    a.has_fallback = true;
    a.fallback.first = static_cast<uint32_t>(steps.size());
    a.fallback.count = static_cast<uint32_t>(more_steps);
    a.fallback.chunks = fallback->chunks;
    a.fallback.protocol = Protocol::kStage;
    plan->fallback = {fallback->scratch_chunks, fallback->max_step_chunks, fallback->uniform_only};
    translate(*fallback, steps, operands);
  }
  a.operands_at = static_cast<uint16_t>(steps.size() * sizeof(ProgramStep));
  std::memcpy(a.program_bytes, steps.data(), a.operands_at);
  const size_t operand_bytes = operands.size() * sizeof(ProgramOperand);
  std::memcpy(a.program_bytes + a.operands_at, operands.data(), operand_bytes);
  a.bytes = static_cast<uint16_t>(offsetof(KernelArguments, program_bytes) + a.operands_at +
                                  operand_bytes);
  return plan;
}

void GpuExecutor::run(GpuPlan& plan, const GpuCall& call) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  KernelArguments& a = plan.arguments;
  const Collective& c = plan.collective;
  a.input = static_cast<const std::byte*>(call.input);
  a.output = static_cast<std::byte*>(call.output);
  a.count = call.count;
  a.reduction = call.reduction;
  a.element = static_cast<uint32_t>(element_size(call.reduction.type));
  a.signature = call.signature;
  const size_t block = call.count * a.element;
  const bool packed = a.program.protocol == Protocol::kPacked;
  const bool overwritten = c.kind == CollectiveKind::kAllToAll && call.input == call.output;
  if (overwritten) {
    a.input_place = a.output_place = kPrivate;  // while others still read it
  } else if (s.registrations != nullptr && !packed) {
    s.registrations->catch_up();
    const auto place = [&](const void* pointer, int blocks) {
      return blocks > 0 ? s.registrations->place(pointer, block * static_cast<size_t>(blocks)) : 0;
    };
    a.input_place = place(call.input, c.input_blocks(s.options.rank));
    a.output_place = place(call.output, c.output_blocks(s.options.rank));
  } else {
    a.input_place = reinterpret_cast<uint64_t>(call.input);
    a.output_place = reinterpret_cast<uint64_t>(call.output);
  }
  // Everything here is the same on all ranks: blocks talk to the same block of their peers.
  const auto n = static_cast<uint64_t>(c.nranks);
  const uint64_t chunk_bytes = ceil_div(block, static_cast<uint64_t>(a.program.chunks));
  uint64_t threads = kThreads, ctas = 1;
  if (packed) {
    // Chunks that a rank sends or receives side by side.
    const bool whole = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kReduce ||
                       (c.kind == CollectiveKind::kAllReduce && a.program.chunks == 1);
    const uint64_t words = ceil_div(chunk_bytes, 8) * (whole ? 1 : n - 1);
    ctas = std::clamp<uint64_t>(
        ceil_div(words, kWordsPerCta), 1,
        std::min<uint64_t>(static_cast<uint64_t>(s.max_ctas), s.comm.packed_ctas));
    threads = std::clamp<uint64_t>(round_up(ceil_div(words, ctas), 32), 128, kThreads);
  } else {
    ctas = std::clamp<uint64_t>(ceil_div(chunk_bytes * n, s.options.cta_bytes), 1,
                                static_cast<uint64_t>(s.max_ctas));
  }
  const auto capacity = [&](const StepRange& range, const GpuPlan::Form& form) -> uint64_t {
    if (range.protocol == Protocol::kPacked)
      return kSlotBytes / a.element / static_cast<uint64_t>(form.max_step_chunks) /
             std::max<uint64_t>(1, 16 / a.element) * std::max<uint64_t>(1, 16 / a.element) * ctas;
    return s.stage_bytes / a.element /
           std::max<uint64_t>(1, static_cast<uint64_t>(form.scratch_chunks));
  };
  cut(a.program, plan.program, call.count, a.element, capacity(a.program, plan.program),
      static_cast<uint32_t>(ctas));
  if (a.has_fallback)
    cut(a.fallback, plan.fallback, call.count, a.element, capacity(a.fallback, plan.fallback),
        static_cast<uint32_t>(ctas));
  const Kernels kernels =
      plan.reduces ? reduction_kernels(call.reduction.type, call.reduction.op) : move_kernels();
  void* parameters[] = {&a};
  check(
      cudaLaunchKernel(packed ? kernels.packed : kernels.program, dim3(static_cast<unsigned>(ctas)),
                       dim3(static_cast<unsigned>(threads)), parameters, 0, s.stream),
      "launching a collective");
}

// Between processes what is sent and not registered goes through a stage, a slot per peer, piece by
// piece; what is received is taken from the sender's memory. Both sides cut alike.
void GpuExecutor::run_pairs(std::span<const GpuMessage> sends,
                            std::span<const GpuMessage> receives) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  if (s.registrations == nullptr) {
    const auto place = [](const GpuMessage& m) { return reinterpret_cast<uint64_t>(m.pointer); };
    return launch_pairs(sends, receives, place);
  }
  s.registrations->catch_up();
  const size_t slot = s.send_stage_bytes / static_cast<size_t>(s.options.nranks) / 64 * 64;
  size_t most = 0;
  for (const GpuMessage& m : sends) most = std::max(most, m.bytes);
  for (const GpuMessage& m : receives) most = std::max(most, m.bytes);
  for (size_t at = 0; at < most; at += slot) {
    const auto piece = [&](std::span<const GpuMessage> messages) {
      std::vector<GpuMessage> pieces;
      for (const GpuMessage& m : messages)
        if (at < m.bytes)
          pieces.push_back(
              {static_cast<std::byte*>(m.pointer) + at, std::min(slot, m.bytes - at), m.peer});
      return pieces;
    };
    launch_pairs(piece(sends), piece(receives), [&](const GpuMessage& m) {
      if (is_packed(m.bytes)) return kPrivate;
      const uint64_t registered = s.registrations->place(m.pointer, m.bytes);
      if (registered != kPrivate) return registered;
      const uint64_t offset = s.comm.stage + s.stage_bytes + slot * static_cast<size_t>(m.peer);
      check(cudaMemcpyAsync(s.memory + offset, m.pointer, m.bytes, cudaMemcpyDeviceToDevice,
                            s.stream),
            "copying to the stage");
      return offset;
    });
  }
}

template <typename Place>
void GpuExecutor::launch_pairs(std::span<const GpuMessage> sends,
                               std::span<const GpuMessage> receives, Place place) {
  State& s = *state_;
  PairArguments a;
  a.comm = s.comm;
  a.mine = s.mailbox;
  a.ports = s.comm.ports;
  uint32_t ctas = 1;
  const auto add = [&](PairArguments::Message* list, uint32_t& count, const GpuMessage& m,
                       bool sent) {
    // The number of blocks depends on the size alone, so that both sides come to the same one.
    const bool packed = is_packed(m.bytes);
    const uint64_t wanted =
        packed ? ceil_div(m.bytes, kPairCtaBytes) : ceil_div(m.bytes, s.options.cta_bytes);
    const auto most = static_cast<uint64_t>(s.max_ctas);
    const auto blocks = static_cast<uint16_t>(std::clamp<uint64_t>(
        wanted, 1, packed ? std::min<uint64_t>(most, s.comm.packed_ctas) : most));
    list[count++] = {
        static_cast<std::byte*>(m.pointer), sent ? place(m) : 0, m.bytes, m.peer, blocks, packed};
    ctas = std::max<uint32_t>(ctas, blocks);
    if (packed)
      a.packed_words =
          std::max(a.packed_words, static_cast<uint32_t>(std::min<uint64_t>(
                                       kSlotPackets, round_up(ceil_div(m.bytes, blocks), 16) / 8)));
  };
  for (const GpuMessage& m : sends) add(a.sends, a.send_count, m, true);
  for (const GpuMessage& m : receives) add(a.receives, a.receive_count, m, false);
  void* parameters[] = {&a};
  check(
      cudaLaunchKernel(pair_kernel_function(), dim3(ctas), dim3(kThreads), parameters, 0, s.stream),
      "launching send/recv");
}

}  // namespace weft::cuda
