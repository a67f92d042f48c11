// Kernel launches in general, and launches of programs that access peers' memory.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "src/base/log.h"
#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"
#include "src/exec/cuda/kernels/kernels.h"

namespace weft::cuda {
namespace {

constexpr uint64_t kFewProgramThreads = 128;

// Turns ports back into ranks, because tokens go to mailboxes. Merges `joined` chunks into one.
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

// The number of first steps in which all ranks only meet. The announcement does that instead.
// (Through scratch memory, some ranks may have steps before they meet.)
uint32_t opening_meeting(const Program& program) {
  const auto& steps = program.steps;
  return program.scratch_chunks == 0 && steps.size() > 1 && steps[0].count == 0 &&
                 steps[1].count == 0 && steps[0].destinations > 0 && steps[1].sources > 0
             ? 2
             : 0;
}

// Returns a plan if the program is one movement between two meetings, at the same places on all
// ranks. Fields that depend on the call are not filled in.
std::optional<OneMovementPlan> one_movement_plan(std::span<const ProgramStep> steps,
                                                 std::span<const ProgramOperand> operands, int rank,
                                                 int n) {
  const auto others = static_cast<uint16_t>(n - 1);
  const bool meets = steps.size() == 3 && steps[1].count == 0 && steps[1].sources == 0 &&
                     steps[1].destinations == others && steps[2].count == 0 &&
                     steps[2].sources == others && steps[2].destinations == 0;
  if (!(n == 1 ? steps.size() == 1 : meets) || steps[0].count != 1) return std::nullopt;
  OneMovementPlan plan;
  plan.step = steps[0];
  const auto side = [&](size_t first, size_t count, ProgramBuffer buffer, uint32_t& ranks,
                        int32_t& index) {
    index = operands[first].index;
    for (const ProgramOperand& operand : operands.subspan(first, count)) {
      const uint32_t bit = uint32_t{1} << (operand.owner >= 0 ? operand.owner : rank);
      // In rank order, like the kernel.
      if (operand.buffer != buffer || operand.index != index || bit <= ranks) return false;
      ranks |= bit;
    }
    return true;
  };
  const size_t first = plan.step.first_operand;
  if (plan.step.sources == 0 || plan.step.destinations == 0 ||
      !side(first, plan.step.sources, ProgramBuffer::kInput, plan.sources, plan.source_index) ||
      !side(first + plan.step.sources, plan.step.destinations, ProgramBuffer::kOutput,
            plan.destinations, plan.destination_index))
    return std::nullopt;
  return plan;
}

// The same for a call whose arguments are filled in.
OneMovement one_movement_of(const OneMovementPlan& plan, const KernelArguments& a) {
  OneMovement one;
  one.sources = plan.sources;
  one.destinations = plan.destinations;
  one.source_at = chunk_begin(a.program, a.stride, plan.source_index) * a.element;
  one.destination_at = chunk_begin(a.program, a.stride, plan.destination_index) * a.element;
  one.elements = chunk_length(a.program, a.count, plan.step.sub);
  one.scaled = a.reduction.premultiply ? plan.step.raw_sources : 0;
  one.divide_by = plan.step.completes ? a.reduction.divide_by : 0;
  return one;
}

StepRange range_of(const Program& program, uint32_t first, uint32_t skipped) {
  StepRange range;
  range.first = first + skipped;
  range.count = static_cast<uint32_t>(program.steps.size()) - skipped;
  range.chunks = program.chunks;
  range.protocol = program.scratch_chunks > 0 ? Protocol::kScratch : Protocol::kPeerMemory;
  range.scratch_chunks = static_cast<uint32_t>(program.scratch_chunks);
  return range;
}

}  // namespace

void GpuExecutor::launch(const void* kernel, uint64_t ctas, uint64_t threads, void* arguments,
                         bool early, size_t shared_bytes) const {
  State& s = *state_;
  s.launched_blocks = std::max(s.launched_blocks, static_cast<int>(ctas));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = s.order->stream();
  config.dynamicSmemBytes = shared_bytes;
  cudaLaunchAttribute attributes[2];
  config.attrs = attributes;
  if (early && s.starts_early && s.order->may_start_early()) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  // Otherwise the kernel has the priority of its stream.
  if (const int priority = s.priority.load(std::memory_order_relaxed); priority != 0) {
    attributes[config.numAttrs].id = cudaLaunchAttributePriority;
    attributes[config.numAttrs++].val.priority = priority > 0 ? s.most_urgent : s.least_urgent;
  }
  void* parameters[] = {arguments};
  check(cudaLaunchKernelExC(&config, kernel, parameters), "launching a collective");
  s.order->launched(false);
}

int GpuExecutor::take_blocks() { return std::exchange(state_->launched_blocks, 0); }

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
  // Ranks in step that share a GPU work on all chunks together. (Sums of two ranks are faster
  // apart, and so are processes: an all_reduce of 64 MiB between four processes takes 161 us apart
  // and 308 us together.) A bare kernel moves 3,655 GB/s with fixed
  // shares, 3,817 to 3,865 where all blocks draw tiles from one counter, and 2,601 where they draw
  // within their rank: blocks must stay close together in memory. Stores that are evicted first or
  // streamed make no difference.
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
  if (a.program.protocol == Protocol::kPeerMemory)
    plan->one_movement =
        one_movement_plan(std::span(steps).subspan(a.program.first, a.program.count), operands,
                          s.options.rank, s.options.nranks);
  const size_t step_bytes = steps.size() * sizeof(ProgramStep),
               operand_bytes = operands.size() * sizeof(ProgramOperand);
  a.operands_at = static_cast<uint16_t>(step_bytes);
  std::memcpy(a.program_bytes, steps.data(), step_bytes);
  std::memcpy(a.program_bytes + step_bytes, operands.data(), operand_bytes);
  a.bytes = static_cast<uint16_t>(a.program_bytes + step_bytes + operand_bytes -
                                  reinterpret_cast<std::byte*>(&a));
  return plan;
}

// Splits the call's blocks into chunks, a chunk into a share per thread block, and a share into
// slices. The stage holds one slice of every thread block.
void GpuExecutor::slice_range(StepRange& range, bool uniform_only, uint64_t count, uint32_t element,
                              uint64_t ctas) const {
  const uint64_t unit = uniform_only ? 1 : std::max<uint64_t>(1, 64 / element);
  range.chunk = round_up(ceil_div(count, static_cast<uint64_t>(range.chunks)), unit);
  range.share = 0;
  range.part = 0;
  range.slices = 1;
  if (range.protocol == Protocol::kPeerMemory) return;
  const uint64_t grain = std::max<uint64_t>(1, 16 / element);
  const uint64_t capacity = state_->sizes.stage / element / range.scratch_chunks / ctas;
  range.share = round_up(ceil_div(range.chunk, ctas), grain);
  range.part = std::min(range.share, capacity / (3 * grain) * (3 * grain));
  range.slices = ceil_div(range.share, range.part);
  range.staggered = range.slices > 2;
  if (range.staggered) range.slices++;  // the first is shorter in some thread blocks
}

void GpuExecutor::run(GpuPlan& plan, const GpuCall& call) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  if (plan.kind == GpuPlan::Kind::kPackets) return run_packets(plan, call);
  if (plan.kind == GpuPlan::Kind::kOneRound) return run_one_round(plan, call);
  KernelArguments& a = plan.arguments;
  const Collective& c = plan.collective;
  a.input = static_cast<const std::byte*>(call.input);
  a.output = static_cast<std::byte*>(call.output);
  a.count = call.count;
  a.stride = call.stride;
  a.reduction = call.reduction;
  a.element = static_cast<uint32_t>(element_size(call.reduction.type));
  a.signature = call.signature;
  a.comm.call = s.comm.call;
  const size_t block = call.count * a.element;
  const bool overwritten = c.kind == CollectiveKind::kAllToAll && call.input == call.output;
  if (overwritten) {
    a.input_place = a.output_place = kPrivate;  // peers still read the buffer while results arrive
  } else {
    const auto place = [&](const void* pointer, int blocks) {
      return blocks > 0 ? s.place_of(pointer, call.span(blocks)) : 0;
    };
    a.input_place = place(call.input, c.input_blocks(s.options.rank));
    a.output_place = place(call.output, c.output_blocks(s.options.rank));
  }
  // The same on all ranks, because a block communicates with the same block of its peers.
  const uint64_t chunk_bytes = ceil_div(block, static_cast<uint64_t>(a.program.chunks));
  const uint64_t all_bytes =
      chunk_bytes * (a.program.together ? 1 : static_cast<uint64_t>(c.nranks));
  const auto ctas = std::clamp<uint64_t>(ceil_div(all_bytes, s.options.cta_bytes), 1,
                                         static_cast<uint64_t>(s.max_ctas));
  slice_range(a.program, plan.program_is_uniform, call.count, a.element, ctas);
  if (plan.one_movement) a.one_movement = one_movement_of(*plan.one_movement, a);
  if (a.has_fallback)
    slice_range(a.fallback, plan.fallback_is_uniform, call.count, a.element, ctas);
  const Kernels kernels =
      c.reduces() ? reduction_kernels(call.reduction.type, call.reduction.op) : move_kernels();
  // No more threads than vectors to move: the set-up of all warps takes longer with more warps. (A
  // fallback has more to do.)
  uint64_t threads = s.threads;
  if (plan.one_movement && a.input_place != kPrivate && a.output_place != kPrivate) {
    const uint64_t blocks = ctas * (a.program.together ? static_cast<uint64_t>(c.nranks) : 1);
    const uint64_t vectors = ceil_div(a.program.chunk * a.element, blocks * 16);
    threads = std::clamp<uint64_t>(std::bit_ceil(vectors), kFewProgramThreads, s.threads);
  }
  // May start early behind another program kernel, which lets it start when all ranks are done.
  // Behind a kernel that lets it start at once, it would take SMs from peers that have not launched
  // yet.
  launch(kernels.program.of(a.bytes), ctas, threads, &a, s.order->follows_program());
  s.order->launched(true);
}

}  // namespace weft::cuda
