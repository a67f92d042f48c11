// Lane programs and their messages: upload and launch.
#include <algorithm>
#include <bit>
#include <cstring>

#include "src/exec/cuda/cuda_check.h"
#include "src/exec/cuda/gpu_state.h"
#include "src/exec/cuda/kernels/kernels.h"
#include "src/exec/cuda/lane_messages.h"
#include "src/exec/cuda/memory_sizes.h"

namespace weft::cuda {
namespace {

constexpr size_t kMostShared = 38 << 10;  // dynamic, besides what kernels declare
constexpr uint64_t kFewThreads = 64;
// The most words of a message that a single warp moves, one a thread at a time.
constexpr uint64_t kMostWarpWords = 128;
// Plans that are uploaded twice, see lay_end_to_end(). Larger ones would fill the room for plans.
constexpr size_t kMostWholeBytes = 64 << 10;
// Items of a block whose warps lead: a thread of a warp watches each (LaneRunner::run_items()).
constexpr uint64_t kMostWarpItems = kThreads;
static_assert(GpuExecutor::kMostMessages == kMostKernelMessages);

Postbox* postbox_of(const GpuExecutor::State& s, int peer, size_t stream) {
  return static_cast<Postbox*>(s.postboxes.get()) + static_cast<size_t>(peer) * s.lane_streams +
         stream;
}

// A port between this rank and one of another host, which is reached by posts. Words and pools have
// the same places in all areas.
LanePort remote_port(const GpuExecutor::State& s, const LaneImagePort& from, bool receives,
                     bool messages) {
  const int me = s.options.rank, n = s.options.nranks;
  std::byte* const area = s.areas_of[static_cast<size_t>(me)];
  auto* words = reinterpret_cast<LaneWords*>(area);
  const auto theirs = [&](void* mine) { return kRemote + (static_cast<std::byte*>(mine) - area); };
  Tail* tails = messages ? words->message_tails() : words->tails;
  Credit* credits = messages ? words->message_credits(n) : words->credits;
  std::byte* pool = area + lane_area_pool(n);
  LanePort out;
  out.peer = from.peer;
  out.position = from.position;
  out.credit_position = from.credit_position;
  if (messages) place_message_port(out, receives ? me : from.peer, receives ? from.peer : me);
  out.per_iteration = from.per_iteration;
  out.pool = receives ? pool : reinterpret_cast<std::byte*>(theirs(pool));
  out.tails = receives ? tails : reinterpret_cast<Tail*>(theirs(tails));
  Packet* packets = messages ? words->small_messages(n) : words->packets;
  out.packets = receives ? packets : reinterpret_cast<Packet*>(theirs(packets));
  out.credits = receives ? reinterpret_cast<Credit*>(theirs(credits)) : credits;
  out.grant = receives ? reinterpret_cast<Packet*>(theirs(&words->grants(n)[me]))
                       : &words->grants(n)[from.peer];
  out.outbox = pool + lane_pool_bytes(s.options.scratch_bytes, true);
  out.post = postbox_of(s, from.peer, out.position % s.lane_streams);
  out.small_post = postbox_of(s, from.peer, 0);
  return out;
}

// A port between this rank and a peer. `messages`: of send/recv, and not of a schedule.
LanePort connected_port(const GpuExecutor::State& s, const LaneImagePort& from, bool receives,
                        bool messages) {
  const int me = s.options.rank, n = s.options.nranks;
  const int consumer = receives ? me : from.peer, producer = receives ? from.peer : me;
  const auto peer = static_cast<size_t>(from.peer);
  if (s.remote[peer]) return remote_port(s, from, receives, messages);
  const bool near = s.areas_of[peer] == nullptr || from.peer == me;
  const auto memory_of = [&](int rank) {
    return (near ? s.blocks_of : s.areas_of)[static_cast<size_t>(rank)];
  };
  const size_t words_at = near ? s.words_at : 0, pool_at = near ? s.comm.stage : lane_area_pool(n);
  auto* of_consumer = reinterpret_cast<LaneWords*>(memory_of(consumer) + words_at);
  auto* of_producer = reinterpret_cast<LaneWords*>(memory_of(producer) + words_at);
  LanePort out;
  out.pool = memory_of(consumer) + pool_at;
  out.tails = messages ? of_consumer->message_tails() : of_consumer->tails;
  out.credits = messages ? of_producer->message_credits(n) : of_producer->credits;
  out.packets = messages ? of_consumer->small_messages(n) : of_consumer->packets;
  out.grant = &of_producer->grants(n)[consumer];
  if (s.registrations != nullptr && !(messages && from.peer == me))  // see place_of()
    out.registrations = s.comm.registrations +
                        static_cast<size_t>(s.sharer_of[static_cast<size_t>(consumer)]) * kPlaces;
  out.position = from.position;
  out.credit_position = from.credit_position;
  if (messages) place_message_port(out, consumer, producer);
  out.per_iteration = from.per_iteration;
  out.peer = from.peer;
  out.reachable = near;
  return out;
}

// A port of every rank that sends to this one.
std::vector<LanePort> producers_of(const GpuExecutor::State& s, const LaneImage& image) {
  std::vector<LanePort> producers;
  for (const LaneImage::Lane& lane : image.lanes)
    for (const LaneImagePort& port : lane.receives)
      if (std::none_of(producers.begin(), producers.end(),
                       [&](const LanePort& other) { return other.peer == port.peer; })) {
        producers.push_back(connected_port(s, port, true, false));
        // Where calls may be eager, grants to a rank go through one stream: none overtakes another.
        LanePort& out = producers.back();
        if (s.room.eager_bytes > 0) out.post = out.small_post;
        out.mutual = sends_to(image, out.peer);
      }
  return producers;
}

void fill_in(LaneArguments& a, const GpuExecutor::State& s) {
  a.watch = s.comm;
  a.counters = static_cast<LaneCounters*>(s.lane_counters.get());
  a.pool = s.memory + s.comm.stage;
  a.ranks = static_cast<uint32_t>(s.options.nranks);
  if (s.options.net_lanes) {
    std::byte* area = s.areas_of[static_cast<size_t>(s.options.rank)];
    a.sent = reinterpret_cast<uint64_t*>(area + lane_area_pool(s.options.nranks)) - 1;
    a.gpu_shift = s.gpu_shift;
    a.small_outbox_at = lane_pool_bytes(s.options.scratch_bytes, true);
  }
  a.system = !s.comm.one_device || s.options.system_scope || s.options.net_lanes;
}

// Which buffers of a call NICs read and write.
void reach_buffers(LaneArguments& a, const GpuExecutor::State& s, const LaneImage& image,
                   const GpuCall& call) {
  const auto reached = [&](const void* buffer, int blocks) {
    return blocks > 0 && s.nics_reach(buffer, call.span(blocks));
  };
  a.data.nic_input = reached(call.input, image.collective.input_blocks(s.options.rank));
  a.data.nic_output = reached(call.output, image.collective.output_blocks(s.options.rank));
}

// Shared memory for the items of a block, and for their lanes if these fit. `sizes`: of lanes.
size_t shared_bytes(LaneArguments& a, uint64_t blocks, size_t most,
                    const std::vector<LaneSize>& sizes = {}) {
  const size_t own = ceil_div(a.items, blocks);
  if (own * kLaneItemBytes > most)
    fail(ncclInvalidUsage, "{} lanes are too many for {} thread blocks", a.items, blocks);
  a.has_waits = own * (kLaneItemBytes + kLaneWaitBytes) <= most;
  const size_t items = own * (kLaneItemBytes + (a.has_waits ? kLaneWaitBytes : 0));
  size_t lanes = own * (size_t{a.lane_bytes} + a.resolved_bytes);
  if (items + lanes <= most) {
    a.sizes = nullptr;
  } else if (a.sizes != nullptr) {
    lanes = most_lane_bytes(sizes, a.in_a_row, static_cast<uint32_t>(blocks));
  }
  a.in_shared = items + lanes <= most;
  return items + (a.in_shared ? lanes : 0);
}

// Threads of a block with `own` items at most, for messages of so many words. In blocks with
// several items each has a warp of its own, or a warp leads.
uint64_t packet_threads(uint64_t words, uint64_t own, bool warps) {
  if (warps) return std::max(own * 32, round_up(words, 32));
  return round_up(words, 32) + (own > 1 ? 32 : 0);
}

}  // namespace

// Usually there is room that was allocated at init: an allocation might wait for kernels that wait
// for this rank.
std::pair<std::byte*, std::byte*> GpuExecutor::State::plan_room(LanePlan& plan, size_t bytes) {
  const size_t at = plan_bytes_used;
  if (at + bytes <= kPlanBytes) {
    plan_bytes_used = round_up(at + bytes, 256);
    return {static_cast<std::byte*>(plan_memory.get()) + at,
            static_cast<std::byte*>(plan_copy.get()) + at};
  }
  plan.memory = PooledResource(DeviceStore::Kind::kDeviceMemory, bytes);
  plan.copy = PooledResource(DeviceStore::Kind::kHostMemory, bytes);
  large_plan_bytes += bytes;
  return {static_cast<std::byte*>(plan.memory.get()), static_cast<std::byte*>(plan.copy.get())};
}

std::shared_ptr<LanePlan> GpuExecutor::prepare_lanes(const VerifiedSchedule& schedule,
                                                     const VerifiedSchedule* also, int fifo_depth) {
  State& s = *state_;
  const SetupScope scope(s.options.device);
  auto plan = std::make_shared<LanePlan>();
  plan->image =
      lane_image(schedule, also, s.options.rank, fifo_depth, s.options.straight, s.apart());
  plan->image.instances = balanced_instances(plan->image.weights, s.room.blocks);
  const LaneImage& image = plan->image;
  std::vector<std::vector<std::byte>> lanes;
  const auto write = [&](const LaneImage& from) {
    lanes.clear();
    for (const LaneImage::Lane& lane : from.lanes)
      lanes.push_back(write_lane(lane, {}, [&](const LaneImagePort& port, bool receives) {
        return connected_port(s, port, receives, false);
      }));
    return join_lanes(lanes, plan->lane_bytes, plan->resolved_bytes);
  };
  std::vector<std::byte> bytes = write(image);
  const size_t whole_at = round_up(bytes.size(), 128);
  LaneImage whole = image;
  const bool has_whole = bytes.size() <= kMostWholeBytes && lay_end_to_end(whole);
  if (has_whole) {
    bytes.resize(whole_at);
    const std::vector<std::byte> more = write(whole);
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  plan->sizes = lane_sizes(lanes);
  const std::vector<LanePort> producers = producers_of(s, image);
  const size_t producers_at = round_up(bytes.size(), 128),
               sizes_at = round_up(producers_at + producers.size() * sizeof(LanePort), 128),
               progress_at = round_up(sizes_at + plan->sizes.size() * sizeof(LaneSize), 128);
  // As many instances as lane_geometry() may take.
  const size_t items = image.lanes.size() * most_instances(image, s.room);
  const size_t uploaded = round_up(progress_at + items * 8, 128);
  // Items need it if a block has too many of them for its shared memory.
  const size_t all =
      uploaded +
      (ceil_div(items, static_cast<size_t>(s.max_ctas)) *
                   (kLaneItemBytes + kLaneWaitBytes + plan->lane_bytes + plan->resolved_bytes) <=
               kMostShared
           ? 0
           : items * plan->resolved_bytes);
  auto [device, copy] = s.plan_room(*plan, all);
  std::memset(copy, 0, uploaded);
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  if (!producers.empty())
    std::memcpy(copy + producers_at, producers.data(), producers.size() * sizeof(LanePort));
  if (!plan->sizes.empty())
    std::memcpy(copy + sizes_at, plan->sizes.data(), plan->sizes.size() * sizeof(LaneSize));
  // In the stream of the call nothing must wait: another stream may share its hardware queue with a
  // kernel that waits for this rank. A graph must not upload at every replay.
  const cudaStream_t stream = captured() ? s.own_stream.stream() : s.order->stream();
  check(cudaMemcpyAsync(device, copy, uploaded, cudaMemcpyHostToDevice, stream),
        "uploading a schedule");
  if (captured()) check(cudaStreamSynchronize(stream), "uploading a schedule");
  s.order->forbid_early_start();
  plan->lanes = device;
  plan->whole_lanes = has_whole ? device + whole_at : nullptr;
  plan->producers = reinterpret_cast<const LanePort*>(device + producers_at);
  plan->producer_count = static_cast<uint32_t>(producers.size());
  plan->device_sizes = reinterpret_cast<const LaneSize*>(device + sizes_at);
  plan->progress = reinterpret_cast<uint64_t*>(device + progress_at);
  plan->resolved = device + uploaded;
  return plan;
}

GpuExecutor::LaneShape GpuExecutor::shape_of(const LanePlan& plan) {
  const LaneImage& image = plan.image;
  return {image.lanes.size(), image.steps(),      image.messages,    image.straight_messages,
          image.chunks,       image.uniform_only, image.partial_sums};
}

std::shared_ptr<float> GpuExecutor::zeros(size_t floats) {
  State& s = *state_;
  const SetupScope scope(s.options.device);
  auto memory =
      std::make_shared<PooledResource>(DeviceStore::Kind::kDeviceMemory, floats * sizeof(float));
  // As in prepare_lanes().
  const cudaStream_t stream = captured() ? s.own_stream.stream() : s.order->stream();
  check(cudaMemsetAsync(memory->get(), 0, floats * sizeof(float), stream), "cudaMemsetAsync");
  if (captured()) check(cudaStreamSynchronize(stream), "cudaMemsetAsync");
  s.order->forbid_early_start();
  return {memory, static_cast<float*>(memory->get())};
}

// Ranks of a process use new streams one at a time, see stream_gate.h. The executor's own stream
// was first used while others were, so a kernel on it could queue behind one that waits for it.
OwnBuffer GpuExecutor::own_buffer(size_t bytes) {
  const SetupScope scope(state_->options.device);
  const StreamGate::Pass pass = StreamGate::Pass::take();
  struct Kept {
    PooledResource stream{DeviceStore::Kind::kStream};
    PooledResource memory;
  };
  auto kept = std::make_shared<Kept>();
  kept->memory = PooledResource(DeviceStore::Kind::kDeviceMemory, bytes);
  OwnBuffer made{static_cast<std::byte*>(kept->memory.get()), kept->stream.stream(), kept};
  check(cudaMemsetAsync(made.data, 0, bytes, made.stream), "cudaMemsetAsync");
  check(cudaStreamSynchronize(made.stream), "cudaStreamSynchronize");
  return made;
}

void GpuExecutor::run_lanes(LanePlan& plan, const GpuCall& call) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  const LaneImage& image = plan.image;
  LaneArguments a;
  fill_in(a, s);
  a.progress = plan.progress;
  a.producers = plan.producers;
  a.producer_count = plan.producer_count;
  a.lanes = plan.lanes;
  a.lane_bytes = plan.lane_bytes;
  a.resolved = plan.resolved;
  a.resolved_bytes = plan.resolved_bytes;
  a.lane_count = static_cast<uint32_t>(image.lanes.size());
  a.chunks = image.chunks;
  a.data.input = static_cast<const std::byte*>(call.input);
  a.data.output = static_cast<std::byte*>(call.output);
  a.data.stride = call.stride;
  a.element = static_cast<uint32_t>(element_size(call.reduction.type));
  a.signature = call.signature;
  a.watch.call = s.comm.call;
  a.reduction = call.reduction;
  // See scale() in combine.cuh.
  if (a.reduction.scale != 0)
    a.reduction.scalar_bits |= static_cast<uint64_t>(std::bit_cast<uint32_t>(a.reduction.scale))
                               << 32;
  if (const int blocks = image.collective.output_blocks(s.options.rank); blocks > 0)
    a.data.output_place = s.place_of(call.output, call.span(blocks));
  if (s.nics_reach_buffers) reach_buffers(a, s, image, call);
  std::copy(image.codecs.begin(), image.codecs.end(), a.codecs);
  if (!image.codecs.empty()) a.codec_block = image.codecs.front().block;
  a.input_losses = call.input_losses;
  a.output_losses = call.output_losses;
  a.losses_stride = call.count;
  const LaneGeometry g = lane_geometry(image, s.room, call.count, a.element);
  a.data.instances = a.word_instances = g.instances;
  a.slots = g.slots;
  a.slot_bytes = g.slot_bytes;
  a.scratch_at = g.scratch_at;
  a.packets = g.packets;
  const bool whole =
      plan.whole_lanes != nullptr && chunks_are_whole(image, g, call.count, call.stride, a.element);
  if (whole) a.lanes = plan.whole_lanes;
  a.eager = g.eager;
  a.eager_at = s.room.pool_bytes;
  a.eager_bytes = s.room.eager_bytes;
  a.data.slice = g.slice;
  a.lends = image.lends && (a.data.nic_input || a.data.nic_output) &&
            g.slice * a.element > a.inline_bytes && !a.eager;
  a.items = a.lane_count * g.instances;
  a.in_a_row = g.instances;
  const uint64_t blocks = std::clamp<uint64_t>(a.items, 1, static_cast<uint64_t>(s.max_ctas));
  a.sizes = plan.device_sizes;
  const size_t shared = shared_bytes(a, blocks, kMostShared, plan.sizes);
  const Kernels kernels = image.collective.reduces() || !image.codecs.empty()
                              ? reduction_kernels(call.reduction.type, call.reduction.op)
                              : move_kernels();
  const uint64_t words =
      ceil_div(g.slice * a.element, 8) * (whole ? static_cast<uint64_t>(image.step_chunks) : 1);
  const uint64_t own = ceil_div(uint64_t{a.items}, blocks);
  a.warps =
      g.packets && own > 1 && own <= kMostWarpItems && image.simple && words <= kMostWarpWords;
  const uint64_t threads =
      g.packets ? std::clamp<uint64_t>(packet_threads(words, own, a.warps), kFewThreads, kThreads)
                : kThreads;
  for (a.data.begin = 0; a.data.begin < call.count; a.data.begin += g.part) {
    a.data.count = std::min(g.part, call.count - a.data.begin);
    a.data.chunk = lane_chunk(image, g, a.data.count);
    // A shorter last part has fewer slices, on all ranks alike.
    a.data.iterations = static_cast<uint32_t>(std::max<uint64_t>(
        1, ceil_div(std::min(a.data.chunk, a.data.count), g.slice * g.instances)));
    launch(kernels.lanes, blocks, threads, &a, s.order->follows_program(), shared);
    s.order->launched(true);
  }
}

// False if some message is not small, or there are too many for the rank's blocks.
bool GpuExecutor::run_small_messages(std::span<const GpuMessage> sends,
                                     std::span<const GpuMessage> receives) {
  State& s = *state_;
  const uint64_t most = small_message_bytes(s.room, s.options.nranks);
  uint64_t largest = 0;
  for (const auto& messages : {sends, receives})
    for (const GpuMessage& message : messages) {
      if (message.bytes == 0 || message.bytes > most) return false;
      largest = std::max(largest, message.bytes);
    }
  SmallMessageArguments a;
  a.watch = s.comm;
  a.counters = static_cast<LaneCounters*>(s.lane_counters.get());
  a.count = static_cast<uint32_t>(sends.size() + receives.size());
  a.half = small_message_half(s.options.nranks);
  const SmallMessageGrid grid =
      small_message_grid(a.count, static_cast<uint32_t>(ceil_div(largest, uint64_t{8})), kThreads,
                         static_cast<uint32_t>(s.max_ctas));
  if (grid.blocks == 0) return false;
  a.team = grid.team;
  alignas(16) ParameterBytes<small_message_parameters(2 * kMostMessages)> parameters;
  std::memcpy(parameters.bytes, static_cast<const void*>(&a), sizeof a);
  std::byte* at = parameters.bytes + sizeof a;
  const auto add = [&](const GpuMessage& message, bool is_send) {
    const LanePort port = connected_port(s, {message.peer, 0, 0, 1}, !is_send, true);
    const SmallMessage small = small_message(
        port, is_send, message.pointer, message.bytes, s.message_counters(is_send, message.peer),
        s.options.nranks, s.areas_of[static_cast<size_t>(s.options.rank)],
        lane_pool_bytes(s.options.scratch_bytes, true));
    std::memcpy(at, &small, sizeof small);
    at += sizeof small;
  };
  for (const GpuMessage& message : sends) add(message, true);
  for (const GpuMessage& message : receives) add(message, false);
  launch(small_message_kernel_function(a.count <= kFewSmallMessages), grid.blocks, grid.threads,
         &parameters, s.order->follows_program());
  s.order->launched(true);
  return true;
}

void GpuExecutor::run_messages(std::span<const GpuMessage> sends,
                               std::span<const GpuMessage> receives) {
  State& s = *state_;
  const DeviceScope scope(s.options.device);
  if (run_small_messages(sends, receives)) return;
  alignas(16) ParameterBytes<kMostMessageBytes> parameters;
  MessageArguments a;
  fill_in(a, s);
  a.counts = false;
  a.lane_count = static_cast<uint32_t>(sends.size() + receives.size());
  a.word_instances = kMessageInstances;
  a.slots = s.room.slots;
  a.slot_bytes = message_slot_bytes(s.room, s.options.nranks);
  a.resolved = static_cast<std::byte*>(s.message_memory.get());
  std::vector<std::vector<std::byte>> lanes;
  uint64_t slice = 0;
  uint32_t instances = 1;
  const uint64_t most_small = small_message_bytes(s.room, s.options.nranks);
  const auto add = [&](const GpuMessage& message, bool is_send) {
    LaneHead head;
    head.own = true;
    head.counter = s.message_counters(is_send, message.peer);
    head.packets = message.bytes > 0 && message.bytes <= most_small;
    a.eager = a.eager || head.packets;
    const uint64_t place = is_send || head.packets
                               ? kPrivate
                               : s.place_of(message.pointer, message.bytes, message.peer);
    const bool remote = s.remote[static_cast<size_t>(message.peer)];
    head.data = head.packets ? small_message_data(message.pointer, message.bytes)
                             : message_data(message.pointer, message.bytes, place, a.slot_bytes,
                                            remote && s.options.cpus_copy ? wide_slots(a.slot_bytes)
                                                                          : uint8_t{1});
    slice = std::max(slice, head.data.slice);
    instances = std::max(instances, head.data.instances);
    if (remote && !head.packets && s.nics_reach(message.pointer, message.bytes))
      (is_send ? head.data.nic_input : head.data.nic_output) = true;
    a.lends = a.lends || head.data.nic_input;
    lanes.push_back(write_lane(message_lane(message.peer, is_send), head,
                               [&](const LaneImagePort& port, bool incoming) {
                                 return connected_port(s, port, incoming, true);
                               }));
  };
  for (const GpuMessage& message : sends) add(message, true);
  for (const GpuMessage& message : receives) add(message, false);
  const std::vector<std::byte> bytes = join_lanes(lanes, a.lane_bytes, a.resolved_bytes);
  a.bytes = static_cast<uint32_t>(sizeof a + bytes.size());
  if (a.bytes > sizeof parameters)
    fail(ncclInternalError, "{} messages do not fit into a kernel", a.lane_count);
  a.items = a.lane_count * instances;
  const uint64_t blocks = std::clamp<uint64_t>(a.items, 1, static_cast<uint64_t>(s.max_ctas));
  // As many threads as move data at once, and a warp that may lead.
  const uint64_t threads =
      std::clamp<uint64_t>(round_up(ceil_div(slice, uint64_t{16}), 32) + 32, kFewThreads, kThreads);
  const bool few = a.bytes <= kFewMessageBytes;
  const size_t shared =
      shared_bytes(a, blocks, kMostShared - (few ? kFewMessageBytes : kMostMessageBytes));
  std::memcpy(parameters.bytes, static_cast<const void*>(&a), sizeof a);
  std::memcpy(parameters.bytes + sizeof a, bytes.data(), bytes.size());
  launch(message_kernel_function(few), blocks, threads, &parameters, s.order->follows_program(),
         shared);
  s.order->launched(true);
}

}  // namespace weft::cuda
