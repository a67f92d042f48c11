// Launches of programs with an OneRoundShape.
#include <algorithm>
#include <bit>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"
#include "src/exec/cuda/kernels/kernels.h"

namespace weft::cuda {
namespace {

// Data per thread block before another block joins. Up to so many threads, two share a word's
// peers: chosen for ranks that share an H200, where 256 were measured.
constexpr uint64_t kWordsPerCta = 128, kMostThreadsOfRows = 384;
// The most words per thread block in a kernel that may start early: one per thread. (Two took 2 us
// more for an all_reduce of 64 KiB between four ranks.)
constexpr uint64_t kEarlyWords = kThreads;

}  // namespace

std::shared_ptr<GpuPlan> GpuExecutor::prepare_one_round(const Program& program) {
  const State& s = *state_;
  const std::optional<OneRoundShape> shape = one_round_shape(program);
  if (!shape || s.options.nranks > kMaxRanks) return nullptr;
  auto plan = std::make_shared<GpuPlan>();
  plan->kind = GpuPlan::Kind::kOneRound;
  plan->collective = program.collective;
  plan->shape = *shape;
  OneRoundArguments& a = plan->one_round_arguments;
  a.mine = s.mailbox;
  a.ports = s.comm.ports;
  a.comm = s.comm;
  a.send_to = shape->send_to;
  a.receive_from = shape->receive_from;
  a.sums_own = shape->sums_own;
  a.slots_at = static_cast<uint32_t>(
      reinterpret_cast<std::byte*>(packet_slots(s.mailbox, s.comm.packet_ctas, s.comm.ports)) -
      reinterpret_cast<std::byte*>(s.mailbox));
  return plan;
}

void GpuExecutor::run_one_round(GpuPlan& plan, const GpuCall& call) {
  const State& s = *state_;
  const OneRoundShape& shape = plan.shape;
  OneRoundArguments& a = plan.one_round_arguments;
  a.bytes = call.count * element_size(call.reduction.type);
  const uint64_t stride = call.stride * element_size(call.reduction.type);
  const auto block = [&](const void* buffer, int32_t index) {
    return static_cast<const std::byte*>(buffer) +
           static_cast<int64_t>(index) * static_cast<int64_t>(stride);
  };
  a.input = block(call.input, shape.send_base);
  a.output = const_cast<std::byte*>(block(call.output, shape.receive_base));
  a.own_from = block(call.input, shape.own_from);
  a.own_to = shape.copies_own ? const_cast<std::byte*>(block(call.output, shape.own_to)) : nullptr;
  if (a.own_to == a.own_from) a.own_to = nullptr;
  a.send_stride = shape.send_step == 0 ? 0 : stride;
  a.receive_stride = shape.receive_step == 0 ? 0 : stride;
  a.reduction = call.reduction;
  a.signature = call.signature;
  a.comm.call = s.comm.call;
  // The same on all ranks.
  const uint64_t words = ceil_div(a.bytes, 8);
  const uint64_t most = std::min<uint64_t>(static_cast<uint64_t>(s.max_ctas), s.comm.packet_ctas);
  const uint64_t few = std::min<uint64_t>(static_cast<uint64_t>(s.early_ctas), most);
  a.early = few > 0 && words <= few * kEarlyWords;
  const uint64_t ctas =
      std::clamp<uint64_t>(ceil_div(words, kWordsPerCta), 1, a.early ? few : most);
  a.part_bytes =
      static_cast<uint32_t>(std::min<uint64_t>(round_up(ceil_div(a.bytes, ctas), 16), kSlotBytes));
  a.slice_bytes = a.part_bytes * ctas;
  a.slices = static_cast<uint32_t>(ceil_div(a.bytes, a.slice_bytes));
  // Every rank chooses for itself how its threads share the work.
  const uint64_t columns =
      std::clamp<uint64_t>(round_up(uint64_t{a.part_bytes} / 8, 32), 32, s.threads);
  const auto peers = std::max(std::popcount(a.send_to), std::popcount(a.receive_from));
  const uint64_t rows = peers > 1 && 2 * columns <= kMostThreadsOfRows ? 2 : 1;
  a.columns = static_cast<uint32_t>(columns);
  const Kernels kernels = plan.collective.reduces()
                              ? reduction_kernels(call.reduction.type, call.reduction.op)
                              : move_kernels();
  launch(kernels.one_round, ctas, columns * rows, &a, a.early);
}

}  // namespace weft::cuda
