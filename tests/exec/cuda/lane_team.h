// Ranks that run calls in the emulated lane kernel. Words and pools lie in plain memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "tests/exec/cuda/lane_network.h"
#include "tests/exec/cuda/lane_ranks.h"
#include "tests/schedule/reference_run.h"
#include "tests/support/sampling.h"

namespace weft::test {

using namespace cuda;  // NOLINT(google-build-using-namespace): it tests most of it

class LaneTeam {
 public:
  // `first`: a team whose ranks' memory it uses; nullptr: its own.
  LaneTeam(const VerifiedSchedule& verified, const LaneCase& shape, LaneTeam* first = nullptr)
      : c_(verified.schedule().collective),
        in_place_(verified.in_place()),
        shape_(shape),
        verified_(verified) {
    ranks_.resize(static_cast<size_t>(c_.nranks));
    if (first != nullptr) network_ = first->network_;
    for (int r = 0; r < c_.nranks && first != nullptr; r++) at(r).home = first->at(r).home;
    for (int r = 0; r < c_.nranks; r++) {
      LaneRank& rank = at(r);
      rank.image = lane_image(verified, nullptr, r, verified.fifo_depth(), shape.straight,
                              [&](int peer) { return apart(r, peer); });
      // The emulated warp has fewer leaders.
      for (LaneImage::Lane& lane : rank.image.lanes)
        for (LaneStep& step : lane.steps) {
          const uint32_t operands = step.sources + step.destinations;
          step.simple = step.simple && operands <= kWarp;
          for (uint32_t i = 0; i < operands && !step.simple; i++)
            lane.operands[step.first_operand + i].lends = false;
        }
      if (first == nullptr)
        rank.home->memory.resize(outbox_at() + (shape.host > 0 ? shape.pool_bytes() : 0));
    }
    if (shape.host > 0 && first == nullptr) {
      std::vector<LaneArea> areas;
      for (LaneRank& rank : ranks_) areas.push_back(area_of(rank));
      network_ = std::make_shared<LaneNetwork>(
          areas, [&](int a, int b) { return apart(a, b); }, shape.buffers > 0);
    }
    for (int r = 0; r < c_.nranks; r++) connect(r);
  }

  // All ranks but one run a call, and know that it has left. Returns the first error of each. All
  // stop when those of `finders` report errors; none: nobody is told to stop.
  std::vector<uint64_t> run_without(int missing, const std::vector<int>& finders = {}) {
    missing_ = missing;
    const std::jthread watcher = stop_after(finders);
    for (LaneRank& rank : ranks_) *gone_word(&rank.home->flags, missing) |= 1u << missing;
    run();
    return errors();
  }

  // Ranks run a call, but `other` another one. All stop when those of `finders` report errors.
  std::vector<uint64_t> run_with_other_call(int other, const std::vector<int>& finders) {
    at(other).arguments.signature++;
    const std::jthread watcher = stop_after(finders);
    run();
    return errors();
  }
  // Whether anything has been written to a block of a rank's output.
  bool has_output(int rank, int block) {
    const int32_t* found =
        at(rank).buffer.data() + at(rank).output_at + static_cast<uint64_t>(block) * shape_.count;
    return std::any_of(found, found + shape_.count, [](int32_t value) { return value != -1; });
  }
  std::vector<uint64_t> errors() const {
    std::vector<uint64_t> all;
    for (const LaneRank& rank : ranks_) all.push_back(rank.home->flags.error);
    return all;
  }

  // Runs a call. Returns "" or what is wrong.
  std::string run() { return run({this}); }
  // Runs calls of teams with the same memory. A rank begins the next call when it is done with one,
  // whatever the others do, and now and then later.
  // `late`: a rank that begins much later; -1: none.
  static std::string run(const std::vector<LaneTeam*>& calls, int late = -1) {
    for (LaneTeam* team : calls)
      for (int r = 0; r < team->c_.nranks; r++) team->fill(r);
    std::vector<std::thread> threads;
    for (int r = 0; r < calls.front()->c_.nranks; r++)
      threads.emplace_back([&, r] { run_rank(calls, r, r == late); });
    for (std::thread& thread : threads) thread.join();
    for (LaneTeam* team : calls)
      if (std::string wrong = team->check(); !wrong.empty()) return wrong;
    return "";
  }

  // Messages that NICs sent from buffers, and that they brought into them.
  std::pair<uint64_t, uint64_t> by_nics() const {
    std::pair<uint64_t, uint64_t> all;
    for (const LaneRank& rank : ranks_) {
      if (rank.home->buffers == nullptr) continue;
      all.first += rank.home->buffers->sent;
      all.second += rank.home->buffers->received;
    }
    return all;
  }

  // Lanes with nothing to do but to wait, and ports whose producer was told of room.
  size_t only_arriving() const {
    size_t all = 0;
    for (const LaneRank& rank : ranks_)
      for (size_t i = 0; i < rank.image.lanes.size(); i++) {
        LaneHead head;
        std::memcpy(&head, rank.lanes.data() + i * rank.arguments.lane_bytes, sizeof head);
        all += head.only_arrives ? 1 : 0;
      }
    return all;
  }
  // Lanes whose operands the kernel has not even resolved. (Only if they are not in shared memory.)
  size_t unresolved() const {
    size_t all = 0;
    for (const LaneRank& rank : ranks_) {
      const size_t each = rank.arguments.resolved_bytes;
      for (size_t at = 0; at + each <= rank.resolved.size() && each > 0; at += each)
        all += std::all_of(rank.resolved.begin() + at, rank.resolved.begin() + at + each,
                           [](std::byte b) { return b == std::byte{0}; })
                   ? 1
                   : 0;
    }
    return all;
  }
  size_t told_of_room() const {
    size_t all = 0;
    for (const LaneRank& rank : ranks_)
      for (const Credit& credit :
           reinterpret_cast<const LaneWords*>(rank.home->memory.data())->credits)
        all += credit.head != 0 ? 1 : 0;
    return all;
  }

  // Ranks whose calls are eager.
  size_t eager() const {
    return static_cast<size_t>(std::count_if(
        ranks_.begin(), ranks_.end(), [](const LaneRank& rank) { return rank.arguments.eager; }));
  }
  // The last call that eager messages came of, to any rank. 0: none.
  uint64_t last_eager_call() const {
    uint64_t last = 0;
    for (const LaneRank& rank : ranks_)
      for (const auto& half :
           reinterpret_cast<const LaneWords*>(rank.home->memory.data())->eager_tails)
        for (const Tail& word : half)
          last = std::max(last, __atomic_load_n(&word.tail, __ATOMIC_ACQUIRE) >> 32);
    for (const LaneRank& rank : ranks_)
      for (const Packet& packet :
           reinterpret_cast<const LaneWords*>(rank.home->memory.data())->packets)
        last = std::max<uint64_t>(last, __atomic_load_n(&packet.flag0, __ATOMIC_ACQUIRE));
    return last;
  }
  // As if a consumer had granted a call to a producer.
  void grant(int producer, int consumer, uint32_t call) {
    Packet* grants =
        reinterpret_cast<LaneWords*>(at(producer).home->memory.data())->grants(c_.nranks);
    grants[(call & 1) * static_cast<uint32_t>(c_.nranks) + static_cast<uint32_t>(consumer)].flag0 =
        call;
  }

  // Ranks that move several chunks as one.
  size_t whole() const { return whole_; }
  // Ranks whose messages are packets.
  size_t with_packets() const {
    return static_cast<size_t>(std::count_if(
        ranks_.begin(), ranks_.end(), [](const LaneRank& rank) { return rank.arguments.packets; }));
  }
  // Ranks whose warps lead themselves.
  size_t with_warps() const {
    return static_cast<size_t>(std::count_if(
        ranks_.begin(), ranks_.end(), [](const LaneRank& rank) { return rank.arguments.warps; }));
  }
  size_t straight() const {
    size_t all = 0;
    for (const LaneRank& rank : ranks_) all += rank.image.straight_messages;
    return all;
  }

 private:
  // What the host does: tells all ranks to stop when those of `finders` have reported errors.
  std::jthread stop_after(std::vector<int> finders) {
    if (finders.empty()) return {};
    return std::jthread([this, finders = std::move(finders)](const std::stop_token& stop) {
      const auto failed = [this](int rank) {
        return __atomic_load_n(&at(rank).home->flags.error, __ATOMIC_ACQUIRE) != 0;
      };
      while (!stop.stop_requested() && !std::all_of(finders.begin(), finders.end(), failed))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (LaneRank& rank : ranks_) __atomic_store_n(&rank.home->flags.stop, 1u, __ATOMIC_RELEASE);
    });
  }
  static void run_rank(const std::vector<LaneTeam*>& calls, int r, bool late) {
    const LaneCase& shape = calls.front()->shape_;
    if (r == calls.front()->missing_) return;
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::deque<LaneBlock> blocks(shape.blocks);
    const auto run = [&](size_t call) {
      LaneTeam& team = *calls[call];
      const LaneArguments& a = team.at(r).arguments;
      LaneBlock& block = blocks[blockIdx.x];
      if (team.coded())
        block.run<Native<float>>(a);
      else if (team.c_.reduces())
        block.run<Native<int32_t>>(a);
      else
        block.run<Bytes>(a);
    };
    EmulatedGrid(shape.blocks, shape.threads())
        .run(
            calls.size(), [&](size_t call) { return calls[call]->blocks_of(r); }, run,
            [&](size_t call) {
              calls[call]->spoil_input(r);
              if (call % static_cast<size_t>(calls.front()->c_.nranks) == static_cast<size_t>(r))
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            });
  }
  uint32_t blocks_of(int r) { return std::clamp(at(r).arguments.items, 1u, shape_.blocks); }
  bool coded() const { return !verified_.schedule().codecs.empty(); }
  LaneRank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  LaneArea area_of(LaneRank& rank) const {
    LaneHome& home = *rank.home;
    LaneArea area{home.memory, lane_area_pool(c_.nranks), &home.sent, nullptr, {}};
    if (shape_.gpu && (shape_.all_gpus || (&rank - ranks_.data()) % 2 == 0))
      home.gpu.resize(home.memory.size() - area.words_bytes);
    area.gpu.memory = home.gpu;
    if (shape_.buffers > 0 && !home.gpu.empty()) {
      home.buffers = std::make_shared<NicBuffers>();
      area.gpu.buffers = home.buffers;
    }
    return area;
  }
  size_t outbox_at() const { return lane_area_pool(c_.nranks) + shape_.pool_bytes(); }
  bool apart(int a, int b) const { return shape_.host > 0 && a / shape_.host != b / shape_.host; }

  LanePort port_of(int r, const LaneImagePort& from, bool receives) {
    const int n = c_.nranks;
    const int consumer = receives ? r : from.peer, producer = receives ? from.peer : r;
    auto& words = *reinterpret_cast<LaneWords*>(at(consumer).home->memory.data());
    LanePort out;
    out.pool = at(consumer).home->memory.data() + lane_area_pool(n);
    out.tails = words.tails;
    out.packets = words.packets;
    out.credits = reinterpret_cast<LaneWords*>(at(producer).home->memory.data())->credits;
    out.position = from.position;
    out.credit_position = from.credit_position;
    out.per_iteration = from.per_iteration;
    out.peer = from.peer;
    out.reachable = true;
    out.grant =
        reinterpret_cast<LaneWords*>(at(producer).home->memory.data())->grants(n) + consumer;
    if (apart(r, from.peer))
      network_->connect(out, r, at(r).home->memory.data(), receives, lane_area_pool(n),
                        outbox_at());
    return out;
  }

  void connect(int r) {
    LaneRank& rank = at(r);
    const int n = c_.nranks;
    const auto port = [&](const LaneImagePort& from, bool receives) {
      return port_of(r, from, receives);
    };
    LaneArguments& a = rank.arguments;
    const LaneGeometry g = lane_geometry(rank.image, shape_.room(), shape_.count, sizeof(int32_t));
    EXPECT_EQ(g.part, shape_.count);
    LaneImage image = rank.image;
    if (chunks_are_whole(image, g, shape_.count, shape_.count, sizeof(int32_t)))
      whole_ += lay_end_to_end(image, kWarp) ? 1 : 0;
    std::vector<std::vector<std::byte>> lanes;
    for (const LaneImage::Lane& lane : image.lanes) {
      lanes.push_back(write_lane(lane, {}, port));
      for (const LaneImagePort& from : lane.receives)
        if (std::none_of(rank.producers.begin(), rank.producers.end(),
                         [&](const LanePort& other) { return other.peer == from.peer; })) {
          rank.producers.push_back(port(from, true));
          LanePort& producer = rank.producers.back();
          if (apart(r, from.peer)) producer.post = producer.small_post;
          producer.mutual = sends_to(rank.image, producer.peer);
        }
    }
    a.producers = rank.producers.data();
    a.producer_count = static_cast<uint32_t>(rank.producers.size());
    rank.lanes.assign(join_lanes(lanes, a.lane_bytes, a.resolved_bytes));
    rank.progress.resize(rank.image.lanes.size() * g.instances);
    rank.resolved.resize(rank.image.lanes.size() * g.instances * a.resolved_bytes);
    a.resolved = rank.resolved.data();
    a.watch = {&rank.home->flags, uint64_t{60} * 1'000'000'000, 7};
    a.counters = &rank.home->counters;
    a.progress = rank.progress.data();
    a.lanes = rank.lanes.data();
    a.lane_count = static_cast<uint32_t>(rank.image.lanes.size());
    a.chunks = rank.image.chunks;
    a.in_shared = shape_.in_shared;
    rank.sizes = lane_sizes(lanes);
    if (!shape_.gaps) a.sizes = rank.sizes.data();
    a.packets = g.packets;
    a.eager = g.eager;
    a.eager_at = shape_.room().pool_bytes;
    a.eager_bytes = shape_.room().eager_bytes;
    a.ranks = static_cast<uint32_t>(n);
    a.pool = rank.home->memory.data() + lane_area_pool(n);
    if (shape_.host > 0) a.sent = &rank.home->sent;
    if (!rank.home->gpu.empty()) a.gpu_shift = rank.home->gpu.data() - a.pool;
    if (shape_.gpu) a.inline_bytes = LaneNetwork::kInlineBytes;
    a.data.stride = a.data.count = shape_.count;
    a.element = sizeof(int32_t);
    a.signature = 77;
    a.data.instances = a.word_instances = g.instances;
    a.data.iterations = g.iterations;
    a.slots = g.slots;
    a.slot_bytes = g.slot_bytes;
    a.scratch_at = g.scratch_at;
    a.data.chunk = g.chunk;
    a.data.slice = g.slice;
    a.items = a.lane_count * g.instances;
    a.in_a_row = g.instances;
    a.warps = shape_.warps > 0 && g.packets && a.items > blocks_of(r) && are_simple(rank.image);
    a.reduction.type = coded() ? ncclFloat32 : ncclInt32;
    std::copy(rank.image.codecs.begin(), rank.image.codecs.end(), a.codecs);
    if (coded()) a.codec_block = rank.image.codecs.front().block;
  }

  static bool are_simple(const LaneImage& image) {
    return std::all_of(image.lanes.begin(), image.lanes.end(), [](const LaneImage::Lane& lane) {
      return std::all_of(lane.steps.begin(), lane.steps.end(),
                         [](const LaneStep& step) { return step.simple; });
    });
  }
  static int32_t value(int rank, uint64_t i) {
    return static_cast<int32_t>(static_cast<uint32_t>(i) * 131u +
                                static_cast<uint32_t>(rank) * 7919u);
  }

  void fill(int r) {
    LaneRank& rank = at(r);
    const auto inputs = static_cast<uint64_t>(c_.input_blocks(r)) * shape_.count,
               outputs = static_cast<uint64_t>(c_.output_blocks(r)) * shape_.count;
    const bool shared = in_place_ && inputs > 0 && outputs > 0;
    const Collective::Overlap overlap = c_.overlap(r, 1);
    rank.buffer.assign(shared ? std::max(inputs, outputs) : inputs + outputs, -1);
    int32_t* input =
        rank.buffer.data() + (shared ? static_cast<uint64_t>(overlap.input_at) * shape_.count : 0);
    rank.output_at = shared ? static_cast<uint64_t>(overlap.output_at) * shape_.count : inputs;
    for (uint64_t i = 0; i < inputs; i++)
      input[i] = coded() ? std::bit_cast<int32_t>(static_cast<float>(value(r, i))) : value(r, i);
    rank.before = rank.buffer;
    if (shape_.feedback) {
      rank.losses.resize(inputs + outputs);
      rank.arguments.input_losses = rank.losses.data();
      rank.arguments.output_losses = rank.losses.data() + inputs;
      rank.arguments.losses_stride = shape_.count;
    }
    rank.arguments.data.input = reinterpret_cast<const std::byte*>(input);
    rank.arguments.data.output = reinterpret_cast<std::byte*>(rank.buffer.data() + rank.output_at);
    if (!shape_.some_private || (&rank - ranks_.data()) % 2 == 0)
      rank.arguments.data.output_place = reinterpret_cast<uint64_t>(rank.arguments.data.output);
    if (rank.home->buffers != nullptr) reach_buffers(rank);
  }

  // Buffers are new in every call, and those of the call before are gone.
  void reach_buffers(LaneRank& rank) {
    NicBuffers& buffers = *rank.home->buffers;
    if (rank.home->slot >= 0) buffers.take_out(rank.home->slot);
    rank.home->slot = -1;
    if (rank.buffer.empty()) return;
    rank.home->slot = buffers.put(reinterpret_cast<std::byte*>(rank.buffer.data()),
                                  rank.buffer.size() * sizeof(int32_t), {});
    while (buffers.state(rank.home->slot) == NicBuffers::State::kPending) std::this_thread::yield();
    EXPECT_EQ(buffers.state(rank.home->slot), NicBuffers::State::kReady);
    rank.arguments.data.nic_output = (shape_.buffers & 1) != 0;
    rank.arguments.data.nic_input = (shape_.buffers & 2) != 0;
    rank.arguments.lends = true;
  }

  // The caller may do that when its kernel has ended.
  void spoil_input(int r) {
    if (at(r).home->buffers == nullptr || in_place_) return;
    std::fill_n(at(r).buffer.begin(), at(r).output_at, -77);
  }

  // Schedules with codecs: the bits are those of the host.
  std::string check_bits() {
    std::vector<std::vector<std::byte>> memory;
    for (LaneRank& rank : ranks_) {
      const auto* bytes = reinterpret_cast<const std::byte*>(rank.before.data());
      memory.emplace_back(bytes, bytes + rank.before.size() * sizeof(int32_t));
    }
    Reduction sum;
    expected_losses_.resize(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); r++) expected_losses_[r].resize(ranks_[r].losses.size());
    run_reference(verified_, sum, shape_.count, memory,
                  shape_.feedback ? &expected_losses_ : nullptr);
    for (int r = 0; r < c_.nranks; r++) {
      const std::vector<float>& losses = expected_losses_[static_cast<size_t>(r)];
      if (!losses.empty() &&
          std::memcmp(losses.data(), at(r).losses.data(), at(r).losses.size() * sizeof(float)) != 0)
        return "rank " + std::to_string(r) + " keeps other losses";
      const uint64_t outputs = static_cast<uint64_t>(c_.output_blocks(r)) * shape_.count;
      const std::byte* expected = memory[static_cast<size_t>(r)].data() + 4 * at(r).output_at;
      const int32_t* found = at(r).buffer.data() + at(r).output_at;
      for (uint64_t i = 0; i < outputs; i++)
        if (std::memcmp(expected + 4 * i, found + i, 4) != 0)
          return "rank " + std::to_string(r) + " element " + std::to_string(i) + " differs";
    }
    return "";
  }

  std::string check() {
    for (int r = 0; r < c_.nranks; r++) {
      if (at(r).home->flags.error != 0) return "rank " + std::to_string(r) + " reports an error";
      if (coded()) return check_bits();
      for (int block = 0; block < c_.output_blocks(r); block++) {
        const ChunkGoal goal = c_.goal(r, block, 1);
        const bool of_rank = c_.kind == CollectiveKind::kAllToAll ||
                             c_.kind == CollectiveKind::kScatter ||
                             c_.kind == CollectiveKind::kReduceScatter;
        const uint64_t first = of_rank ? static_cast<uint64_t>(r) * shape_.count : 0;
        for (uint64_t i = 0; i < shape_.count; i++) {
          uint32_t expected = 0;
          for (int from = 0; from < c_.nranks; from++)
            if (goal.contributor == ChunkGoal::kEveryone || goal.contributor == from)
              expected += static_cast<uint32_t>(value(from, first + i));
          const auto found = static_cast<uint32_t>(
              at(r).buffer[at(r).output_at + static_cast<uint64_t>(block) * shape_.count + i]);
          if (found != expected)
            return "rank " + std::to_string(r) + " block " + std::to_string(block) + " element " +
                   std::to_string(i) + ": " + std::to_string(found) + ", not " +
                   std::to_string(expected);
        }
      }
    }
    return "";
  }

  const Collective c_;
  const bool in_place_;
  const LaneCase shape_;
  const VerifiedSchedule verified_;
  int missing_ = -1;
  size_t whole_ = 0;
  std::vector<LaneRank> ranks_;
  std::vector<std::vector<float>> expected_losses_;
  std::shared_ptr<LaneNetwork> network_;
};

}  // namespace weft::test
