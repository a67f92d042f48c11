// Launches of programs with FIFOs in host memory.
#include <algorithm>
#include <bit>
#include <cstring>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"
#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/ring_exchange_arguments.h"

namespace weft::cuda {
namespace {

// Puts arrays into kernel parameters, one after the other.
class ProgramWriter {
 public:
  explicit ProgramWriter(RingArguments& a) : a_(a) {}

  template <typename T>
  uint16_t add(std::span<const T> items) {
    used_ = round_up(used_, alignof(std::max_align_t));
    const size_t at = used_, bytes = items.size_bytes();
    if (used_ + bytes > RingArguments::kProgramBytes)
      fail(ncclInvalidUsage, "this schedule does not fit into a kernel: {} bytes of it, {} at most",
           used_ + bytes, RingArguments::kProgramBytes);
    if (bytes > 0) std::memcpy(a_.program_bytes + at, items.data(), bytes);
    used_ += bytes;
    return static_cast<uint16_t>(at);
  }
  void finish() const {
    a_.bytes = static_cast<uint32_t>(sizeof a_ - RingArguments::kProgramBytes + used_);
  }

 private:
  RingArguments& a_;
  size_t used_ = 0;
};

}  // namespace

void GpuExecutor::connect_rings(std::span<const SendPort> sends, std::span<const RecvPort> receives,
                                std::vector<std::shared_ptr<const void>> owners) {
  const SetupScope scope(state_->options.device);
  state_->rings =
      std::make_unique<Rings>(sends, receives, std::move(owners), state_->own_stream.stream());
}

void GpuExecutor::disconnect_rings() noexcept {
  const SetupScope scope(state_->options.device, std::nothrow);
  state_->rings.reset();
  cudaGetLastError();
}

void GpuExecutor::run_rings(const Program& program, std::span<const GpuRingJob> jobs,
                            size_t blocks) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  const Operation& first = jobs.front().operation;
  const auto too_many = [](const ProgramStep& step) {
    return step.sources > kMaxRanks || step.destinations > kMaxRanks;
  };
  if (jobs.size() > kMaxRingJobs ||
      std::any_of(program.steps.begin(), program.steps.end(), too_many))
    fail(ncclInvalidUsage, "this schedule does not fit into a kernel: {} lanes, {} at most",
         jobs.size(), kMaxRingJobs);
  const size_t scratch = static_cast<size_t>(program.scratch_chunks) * first.chunk * first.element;
  if (scratch > s.sizes.stage)
    fail(ncclInvalidUsage, "this schedule needs {} bytes of scratch memory (WEFT_SCRATCH_BYTES)",
         scratch);
  RingArguments& a = s.ring_arguments;
  static_cast<RingHead&>(a) = {};
  a.lane_count = static_cast<uint32_t>(program.lanes.size());
  a.chunks = program.chunks;
  a.element = first.element;
  a.collective = first.collective;
  a.root = first.root;
  a.plan = first.plan;
  a.reduction = first.reduction;
  // See scale() in combine.cuh.
  if (a.reduction.scale != 0)
    a.reduction.scalar_bits |= static_cast<uint64_t>(std::bit_cast<uint32_t>(a.reduction.scale))
                               << 32;
  a.scratch = s.memory + s.comm.stage;
  if (!program.dependencies.empty()) a.progress = s.rings->progress();
  a.leaving = s.rings->leaving();
  a.comm = s.comm;
  ProgramWriter writer(a);
  a.lanes_at = writer.add(std::span(program.lanes));
  a.steps_at = writer.add(std::span(program.steps));
  a.operands_at = writer.add(std::span(program.operands));
  a.dependencies_at = writer.add(std::span(program.dependencies));
  std::vector<const void*> ports;
  std::vector<RingJob> ring_jobs(jobs.size());
  for (size_t j = 0; j < jobs.size(); j++) {
    const GpuRingJob& from = jobs[j];
    const Operation& op = from.operation;
    RingJob& job = ring_jobs[j];
    job = {op.input, op.output, op.count, op.stride, op.chunk, op.slice, op.iterations};
    job.lane = from.lane;
    job.next = from.next;
    job.sends = static_cast<uint16_t>(from.sends.size());
    job.receives = static_cast<uint16_t>(from.receives.size());
    if (j > 0 && from.sends == jobs[j - 1].sends && from.receives == jobs[j - 1].receives) {
      job.first_send = ring_jobs[j - 1].first_send;
      job.first_receive = ring_jobs[j - 1].first_receive;
      continue;
    }
    job.first_send = static_cast<uint16_t>(ports.size());
    for (const size_t number : from.sends) ports.push_back(s.rings->send(number));
    job.first_receive = static_cast<uint16_t>(ports.size());
    for (const size_t number : from.receives) ports.push_back(s.rings->receive(number));
  }
  a.jobs_at = writer.add(std::span<const RingJob>(ring_jobs));
  a.ports_at = writer.add(std::span<const void* const>(ports));
  writer.finish();
  const bool reduces = program.collective.reduces();
  const Kernels kernels =
      reduces ? reduction_kernels(a.reduction.type, a.reduction.op) : move_kernels();
  // As in run().
  launch(kernels.ring.of(a.bytes), blocks, kThreads, &a, s.order->follows_program());
  s.order->launched(true);
}

bool GpuExecutor::run_ring_exchange(const GpuRingExchange& exchange) {
  State& s = *state_;
  const Operation& op = exchange.operation;
  const OneRoundShape& shape = exchange.shape;
  if (!fits_ring_exchange(op) || s.options.nranks > kMaxRanks) return false;
  const DeviceScope scope(s.options.device);
  RingExchangeArguments a = ring_exchange_arguments(op, shape);
  a.header.sequence = 0;  // kernels do not count calls, because graphs are replayed
  a.comm = s.comm;
  for (uint32_t rank = 0; rank < static_cast<uint32_t>(s.options.nranks); rank++) {
    if ((shape.send_to >> rank & 1) != 0) a.ports[rank].send = s.rings->send(exchange.ports[rank]);
    if ((shape.receive_from >> rank & 1) != 0)
      a.ports[rank].receive = s.rings->receive(exchange.ports[rank]);
  }
  const Kernels kernels =
      shape.reduces ? reduction_kernels(op.reduction.type, op.reduction.op) : move_kernels();
  const uint64_t threads =
      std::clamp<uint64_t>(round_up(ceil_div(a.header.bytes, 16), 32), 32, kThreads);
  // As in run().
  launch(kernels.ring_exchange, 1, threads, &a, s.order->follows_program());
  s.order->launched(true);
  return true;
}

}  // namespace weft::cuda
