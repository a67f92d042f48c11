// How kernels are launched, and launches of programs that reach into memory.
#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"
#include "src/exec/cuda/kernels.h"

namespace weft::cuda {
namespace {

// Ports become ranks again: tokens go to mailboxes. What were `joined` chunks is one.
void translate(const Program& program, int joined, std::vector<ProgramStep>& steps,
               std::vector<ProgramOperand>& operands) {
  for (ProgramStep step : program.steps) {
    const uint32_t first = step.first_operand;
    step.first_operand = static_cast<uint32_t>(operands.size());
    step.sub /= joined;
    steps.push_back(step);
    for (uint32_t i = 0; i < static_cast<uint32_t>(step.sources + step.destinations); i++) {
      ProgramOperand operand = program.operands[first + i];
      if (operand.buffer == ProgramBuffer::kPeer) {
        const auto& ports = i < step.sources ? program.receives : program.sends;
        operand.index = ports[static_cast<size_t>(operand.index)].peer;
      } else {
        operand.index /= joined;
      }
      operands.push_back(operand);
    }
  }
}

bool fits(const Program& program, size_t steps, size_t operands) {
  return program.lanes.size() == 1 && steps <= kMaxSteps && operands <= kMaxOperands &&
         std::all_of(program.steps.begin(), program.steps.end(), [](const ProgramStep& step) {
           return step.sources <= kMaxRanks && step.destinations <= kMaxRanks;
         });
}

// Steps that start with all ranks meeting: the announcement does that. (Where data goes through
// scratch memory, some ranks may have steps before they meet.)
uint32_t opening_meeting(const Program& program) {
  const auto& steps = program.steps;
  return program.scratch_chunks == 0 && steps.size() > 1 && steps[0].count == 0 &&
                 steps[1].count == 0 && steps[0].destinations > 0 && steps[1].sources > 0
             ? 2
             : 0;
}

StepRange range_of(const Program& program, uint32_t first, uint32_t skipped) {
  StepRange range;
  range.first = first + skipped;
  range.count = static_cast<uint32_t>(program.steps.size()) - skipped;
  range.chunks = program.chunks;
  range.protocol = program.scratch_chunks > 0 ? Protocol::kStage : Protocol::kReach;
  range.scratch_chunks = static_cast<uint32_t>(program.scratch_chunks);
  return range;
}

}  // namespace

void GpuExecutor::launch(const void* kernel, uint64_t ctas, uint64_t threads, void* arguments,
                         bool early) const {
  const State& s = *state_;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = s.order->stream();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = early && s.starts_early && s.order->may_start_early() ? 1 : 0;
  void* parameters[] = {arguments};
  check(cudaLaunchKernelExC(&config, kernel, parameters), "launching a collective");
  s.order->launched(false);
}

std::shared_ptr<GpuPlan> GpuExecutor::prepare(const Program& program, const Program* fallback) {
  State& s = *state_;
  const size_t more_steps = fallback != nullptr ? fallback->steps.size() : 0,
               more_operands = fallback != nullptr ? fallback->operands.size() : 0;
  if (!fits(program, program.steps.size() + more_steps, program.operands.size() + more_operands) ||
      (fallback != nullptr && !fits(*fallback, more_steps, more_operands)))
    return nullptr;
  auto plan = std::make_shared<GpuPlan>();
  plan->collective = program.collective;
  plan->program_is_uniform = program.uniform_only;
  KernelArguments& a = plan->arguments;
  a.mine = s.mailbox;
  a.comm = s.comm;
  a.program = range_of(program, 0, opening_meeting(program));
  // Ranks in step that share a GPU do all of their chunks together. (Sums of two are faster apart,
  // and so are processes: an all_reduce of 64 MiB between four takes 161 us, together 308.)
  a.program.together = program.in_step && s.comm.one_device && s.comm.one_process &&
                       (s.options.nranks > 2 || !program.collective.reduces());
  const int joined = a.program.together ? s.options.nranks : 1;
  a.program.chunks /= joined;
  std::vector<ProgramStep> steps;
  std::vector<ProgramOperand> operands;
  translate(program, joined, steps, operands);
  if (fallback != nullptr) {
    plan->fallback_is_uniform = fallback->uniform_only;
    a.has_fallback = true;
    a.fallback = range_of(*fallback, static_cast<uint32_t>(steps.size()), 0);
    translate(*fallback, 1, steps, operands);
  }
  const size_t step_bytes = steps.size() * sizeof(ProgramStep),
               operand_bytes = operands.size() * sizeof(ProgramOperand);
  a.operands_at = static_cast<uint16_t>(step_bytes);
  std::memcpy(a.program_bytes, steps.data(), step_bytes);
  std::memcpy(a.program_bytes + step_bytes, operands.data(), operand_bytes);
  a.bytes =
      static_cast<uint16_t>(offsetof(KernelArguments, program_bytes) + step_bytes + operand_bytes);
  return plan;
}

// Cuts the call's blocks into chunks, those into a share per thread block, and those into slices of
// which one of all thread blocks fits the stage.
void GpuExecutor::cut(StepRange& range, bool uniform_only, uint64_t count, uint32_t element,
                      uint64_t ctas) const {
  const uint64_t unit = uniform_only ? 1 : std::max<uint64_t>(1, 64 / element);
  range.chunk = round_up(ceil_div(count, static_cast<uint64_t>(range.chunks)), unit);
  range.share = 0;
  range.part = 0;
  range.slices = 1;
  if (range.protocol == Protocol::kReach) return;
  const uint64_t grain = std::max<uint64_t>(1, 16 / element);
  const uint64_t capacity = state_->stage_bytes / element / range.scratch_chunks / ctas;
  range.share = round_up(ceil_div(range.chunk, ctas), grain);
  range.part = std::min(range.share, capacity / (3 * grain) * (3 * grain));
  range.slices = ceil_div(range.share, range.part);
  range.staggered = range.slices > 2;
  if (range.staggered) range.slices++;  // the first is shorter in some thread blocks
}

void GpuExecutor::run(GpuPlan& plan, const GpuCall& call) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  if (plan.kind == GpuPlan::Kind::kPacked) return run_packed(plan, call);
  if (plan.kind == GpuPlan::Kind::kExchange) return run_exchange(plan, call);
  KernelArguments& a = plan.arguments;
  const Collective& c = plan.collective;
  a.input = static_cast<const std::byte*>(call.input);
  a.output = static_cast<std::byte*>(call.output);
  a.count = call.count;
  a.reduction = call.reduction;
  a.element = static_cast<uint32_t>(element_size(call.reduction.type));
  a.signature = call.signature;
  const size_t block = call.count * a.element;
  const bool overwritten = c.kind == CollectiveKind::kAllToAll && call.input == call.output;
  if (overwritten) {
    a.input_place = a.output_place = kPrivate;  // while others still read it
  } else if (s.registrations != nullptr) {
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
  // The same on all ranks: blocks talk to the same block of their peers.
  const uint64_t chunk_bytes = ceil_div(block, static_cast<uint64_t>(a.program.chunks));
  const uint64_t all_bytes =
      chunk_bytes * (a.program.together ? 1 : static_cast<uint64_t>(c.nranks));
  const auto ctas = std::clamp<uint64_t>(ceil_div(all_bytes, s.options.cta_bytes), 1,
                                         static_cast<uint64_t>(s.max_ctas));
  cut(a.program, plan.program_is_uniform, call.count, a.element, ctas);
  if (a.has_fallback) cut(a.fallback, plan.fallback_is_uniform, call.count, a.element, ctas);
  const Kernels kernels =
      c.reduces() ? reduction_kernels(call.reduction.type, call.reduction.op) : move_kernels();
  // Behind another one of its kind, which lets it start when all ranks are done. Behind a kernel
  // that lets it start at once it would take the room of peers that are not there yet.
  launch(kernels.program, ctas, s.threads, &a, s.order->follows_program());
  s.order->launched(true);
}

}  // namespace weft::cuda
