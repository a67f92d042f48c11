// Lane programs: upload and launch.
#include <algorithm>
#include <bit>
#include <cstring>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"
#include "src/exec/cuda/kernels/kernels.h"

namespace weft::cuda {
namespace {

constexpr size_t kMostShared = 48 << 10;  // bytes that every kernel may have

// Puts arrays one after the other into memory that is pinned here and will lie at `device`.
class ImageWriter {
 public:
  template <typename T>
  size_t add(std::span<const T> items) {
    bytes_.resize(round_up(bytes_.size(), 16));
    const size_t at = bytes_.size();
    const auto* first = reinterpret_cast<const std::byte*>(items.data());
    bytes_.insert(bytes_.end(), first, first + items.size_bytes());
    return at;
  }
  size_t reserve(size_t bytes) {
    bytes_.resize(round_up(bytes_.size(), 128));
    const size_t at = bytes_.size();
    bytes_.resize(at + bytes);
    return at;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::shared_ptr<LanePlan> GpuExecutor::prepare_lanes(const VerifiedSchedule& schedule,
                                                     int fifo_depth) {
  State& s = *state_;
  const SetupScope scope(s.options.device);
  auto plan = std::make_shared<LanePlan>();
  plan->image = lane_image(schedule, s.options.rank, fifo_depth, s.options.straight);
  const LaneImage& image = plan->image;
  // The consumer's memory holds the FIFO, the producer's the credits.
  const auto port = [&](const LaneImagePort& from, int consumer, int producer) {
    const auto block = [&](int rank) {
      std::byte* area = s.areas_of[static_cast<size_t>(from.peer)];
      if (area == nullptr) return s.blocks_of[static_cast<size_t>(rank)];
      return rank == s.options.rank ? s.areas_of[static_cast<size_t>(rank)] : area;
    };
    const bool near = s.areas_of[static_cast<size_t>(from.peer)] == nullptr;
    const size_t words_at = near ? s.words_at : 0,
                 pool_at = near ? s.comm.stage : lane_area_pool(s.options.nranks);
    LanePort out;
    out.pool = block(consumer) + pool_at;
    out.tails = reinterpret_cast<LaneWords*>(block(consumer) + words_at)->tails;
    out.credits = reinterpret_cast<LaneWords*>(block(producer) + words_at)->credits;
    if (!s.comm.one_process && s.registrations != nullptr)
      out.registrations =
          s.registrations->table() + static_cast<size_t>(consumer) * kMaxRegistrations;
    out.position = from.position;
    out.credit_position = from.credit_position;
    out.per_iteration = from.per_iteration;
    out.peer = from.peer;
    out.reachable = near ? 1 : 0;
    return out;
  };
  std::vector<LanePort> sends, receives;
  for (const LaneImagePort& from : image.sends)
    sends.push_back(port(from, from.peer, s.options.rank));
  for (const LaneImagePort& from : image.receives)
    receives.push_back(port(from, s.options.rank, from.peer));
  ImageWriter writer;
  const size_t lanes_at = writer.add(std::span(image.lanes)),
               steps_at = writer.add(std::span(image.steps)),
               operands_at = writer.add(std::span(image.operands)),
               dependencies_at = writer.add(std::span(image.dependencies)),
               lane_receives_at = writer.add(std::span(image.lane_receives)),
               sends_at = writer.add(std::span<const LanePort>(sends)),
               receives_at = writer.add(std::span<const LanePort>(receives)),
               progress_at = writer.reserve(image.lanes.size() * std::max(1, s.max_ctas) * 8);
  const size_t bytes = writer.bytes().size();
  plan->memory = PooledResource(DeviceStore::Kind::kDeviceMemory, bytes);
  const PooledResource pinned(DeviceStore::Kind::kHostMemory, bytes);
  std::memcpy(pinned.get(), writer.bytes().data(), bytes);
  auto* at = static_cast<std::byte*>(plan->memory.get());
  check(cudaMemcpyAsync(at, pinned.get(), bytes, cudaMemcpyHostToDevice, s.own_stream.stream()),
        "uploading a schedule");
  check(cudaStreamSynchronize(s.own_stream.stream()), "uploading a schedule");
  const auto place = [&]<typename T>(T*& pointer, size_t offset) {
    pointer = reinterpret_cast<T*>(at + offset);
  };
  LaneProgram& p = plan->program;
  place(p.lanes, lanes_at);
  place(p.steps, steps_at);
  place(p.operands, operands_at);
  place(p.dependencies, dependencies_at);
  place(p.lane_receives, lane_receives_at);
  place(p.sends, sends_at);
  place(p.receives, receives_at);
  place(plan->progress, progress_at);
  p.lane_count = static_cast<uint32_t>(image.lanes.size());
  p.chunks = image.chunks;
  return plan;
}

GpuExecutor::LaneShape GpuExecutor::shape_of(const LanePlan& plan) {
  const LaneImage& image = plan.image;
  return {image.lanes.size(), image.steps.size(),  image.messages,    image.straight_messages,
          image.chunks,       image.uniform_only, image.partial_sums};
}

void GpuExecutor::run_lanes(LanePlan& plan, const GpuCall& call) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  const LaneImage& image = plan.image;
  LaneArguments a;
  a.watch = s.comm;
  a.counters = static_cast<LaneCounters*>(s.lane_counters.get());
  a.progress = plan.progress;
  a.program = plan.program;
  a.input = static_cast<const std::byte*>(call.input);
  a.output = static_cast<std::byte*>(call.output);
  a.pool = s.memory + s.comm.stage;
  a.stride = call.count;
  a.element = static_cast<uint32_t>(element_size(call.reduction.type));
  a.signature = call.signature;
  a.system = !s.comm.one_device || s.options.system_scope;
  a.reduction = call.reduction;
  // See scale() in combine.cuh.
  if (a.reduction.scale != 0)
    a.reduction.scalar_bits |= static_cast<uint64_t>(std::bit_cast<uint32_t>(a.reduction.scale))
                               << 32;
  const size_t block = call.count * a.element;
  if (s.registrations != nullptr) {
    s.registrations->catch_up();
    const int blocks = image.collective.output_blocks(s.options.rank);
    if (blocks > 0)
      a.output_place = s.registrations->place(call.output, block * static_cast<size_t>(blocks));
  } else if (s.comm.one_process) {
    a.output_place = reinterpret_cast<uint64_t>(call.output);
  }
  const Kernels kernels = image.collective.reduces()
                              ? reduction_kernels(call.reduction.type, call.reduction.op)
                              : move_kernels();
  const LaneGeometry g = lane_geometry(image, s.room, call.count, a.element);
  a.instances = g.instances;
  a.slots = g.slots;
  a.slot_bytes = g.slot_bytes;
  a.scratch_at = g.scratch_at;
  a.chunk = g.chunk;
  a.slice = g.slice;
  a.items = a.program.lane_count * g.instances;
  const uint64_t blocks = std::clamp<uint64_t>(a.items, 1, static_cast<uint64_t>(s.max_ctas));
  const size_t shared = ceil_div(a.items, blocks) * kLaneItemBytes;
  if (shared > kMostShared)
    fail(ncclInvalidUsage, "{} lanes are too many for {} thread blocks", a.items, blocks);
  for (a.begin = 0; a.begin < call.count; a.begin += g.part) {
    a.count = std::min(g.part, call.count - a.begin);
    // A shorter last part has fewer slices, on all ranks alike.
    a.iterations = static_cast<uint32_t>(std::max<uint64_t>(
        1, ceil_div(std::min(a.chunk, a.count), a.slice * a.instances)));
    launch(kernels.lanes, blocks, kThreads, &a, s.order->follows_program(), shared);
    s.order->launched(true);
  }
}

}  // namespace weft::cuda
