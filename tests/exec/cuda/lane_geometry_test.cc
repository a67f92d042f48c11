// How calls of lane programs are cut: everything is moved once, and everything fits.
#include "src/exec/cuda/lane_geometry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "algorithms/generators/generators.h"
#include "src/base/error.h"
#include "src/exec/cuda/memory_sizes.h"
#include "src/simulator/lane_cut.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using cuda::kLanePackets;
using cuda::kMostLanePorts;
using cuda::LaneGeometry;
using cuda::LaneImage;
using cuda::LaneRoom;
using cuda::Packet;

uint64_t divided_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// As many values of each size, from 1 to 2^bits.
uint64_t of_any_size(Random& random, uint64_t bits) {
  return 1 + random.next() % (uint64_t{1} << random.below(bits + 1));
}

LaneImage random_image(Random& random) {
  LaneImage image;
  image.chunks = static_cast<int32_t>(of_any_size(random, 7));
  image.uniform_only = random.below(4) == 0;
  image.step_chunks = static_cast<int32_t>(1 + random.below(static_cast<uint64_t>(image.chunks)));
  if (random.below(3) == 0) image.scratch_chunks = static_cast<int32_t>(of_any_size(random, 6));
  image.fifo_depth = static_cast<int32_t>(of_any_size(random, 4));
  image.most_lanes = static_cast<uint32_t>(of_any_size(random, 6));
  image.most_ports = static_cast<uint32_t>(random.below(3) == 0 ? 0 : of_any_size(random, 7));
  image.most_messages = image.most_ports == 0 ? 0 : static_cast<uint32_t>(of_any_size(random, 6));
  if (random.below(3) == 0) image.instances = static_cast<uint32_t>(of_any_size(random, 5));
  if (random.below(3) > 0) return image;
  const uint32_t block = kLeastBlock << random.below(9);
  for (uint64_t i = 0; i <= random.below(2); i++)
    image.codecs.push_back({static_cast<Codec>(1 + random.below(kCodecs - 1)), block, 0.1});
  image.all_coded = random.below(2) == 0;
  return image;
}

LaneRoom random_room(Random& random) {
  LaneRoom room;
  room.blocks = static_cast<uint32_t>(of_any_size(random, 7));
  room.pool_bytes = (1 + random.below(32)) << 20;
  room.slots = static_cast<uint32_t>(of_any_size(random, 3));
  room.fifo_bytes = 4096 * of_any_size(random, 8);
  if (random.below(2) == 0) room.packet_bytes = of_any_size(random, 16);
  if (random.below(2) == 0) room.scratch_bytes = (1 + random.below(32)) << 20;
  room.large_messages = random.below(2) == 0;
  return room;
}

struct Cut {
  LaneImage image;
  LaneRoom room;
  uint64_t count = 1;
  uint32_t element = 1;
  LaneGeometry g;

  uint64_t ports() const { return std::max<uint64_t>(1, image.most_ports) * g.instances; }
  uint64_t fifos() const { return ports() * g.slots * g.slot_bytes; }
  // The largest one.
  uint64_t message() const {
    const uint64_t plain = g.slice * element;
    uint64_t chunk = image.all_coded ? 0 : plain;
    for (const CodecSpec& spec : image.codecs)
      chunk = std::max(chunk, encoded_bytes(spec, g.slice, element));
    return static_cast<uint64_t>(image.step_chunks) *
           (g.packets ? divided_up(plain, 8) * sizeof(Packet) : chunk);
  }
};

// Walks through the slices of each chunk of each part, as a rank's launches do. A slice must begin
// where the one before it ended.
void expect_covered(const Cut& cut) {
  const LaneGeometry& g = cut.g;
  ASSERT_GT(g.part, 0u);
  ASSERT_GT(g.slice, 0u);
  for (uint64_t begin = 0; begin < cut.count; begin += g.part) {
    const uint64_t part = std::min(g.part, cut.count - begin);
    const uint64_t iterations =
        std::max<uint64_t>(1, divided_up(std::min(g.chunk, part), g.slice * g.instances));
    ASSERT_LE(iterations, g.iterations);
    const uint64_t chunk = cuda::lane_chunk(cut.image, g, part);
    ASSERT_LE(chunk, g.chunk);
    if (cut.image.uniform_only) {
      ASSERT_EQ(chunk * static_cast<uint64_t>(cut.image.chunks), part) << "equal chunks";
    }
    uint64_t at = 0;
    for (int32_t c = 0; c < cut.image.chunks; c++) {
      const uint64_t first = static_cast<uint64_t>(c) * chunk;
      const uint64_t end = std::min(part, first + chunk);
      for (uint64_t n = 0; n < iterations * g.instances; n++) {
        const uint64_t from = first + n * g.slice;
        if (from >= end) break;
        ASSERT_EQ(from, at);
        at = std::min(end, from + g.slice);
      }
    }
    ASSERT_EQ(at, part) << "elements of a part that are moved";
  }
}

void expect_fits(const Cut& cut) {
  const LaneGeometry& g = cut.g;
  EXPECT_GE(g.instances, 1u);
  EXPECT_LE(g.instances, cuda::most_instances(cut.image, cut.room));
  EXPECT_LE(cut.ports(), kMostLanePorts);
  EXPECT_LE(cut.message(), g.slot_bytes) << "the largest message";
  EXPECT_EQ(g.slot_bytes % 256, 0u);
  if (cut.image.codecs.empty()) {
    EXPECT_EQ(cut.image.uniform_only ? 0 : g.slice * cut.element % 64, 0u) << "whole vectors";
  } else {
    EXPECT_EQ(g.slice % cut.image.codecs.front().block, 0u) << "whole blocks";
  }
  if (g.packets) {
    EXPECT_EQ(g.iterations, 1u);
    EXPECT_EQ(g.slots, cut.image.most_messages) << "no slot is used twice in a call";
    EXPECT_LE(static_cast<uint64_t>(cut.image.scratch_chunks) * g.chunk * cut.element,
              cut.room.scratch_bytes > 0 ? cut.room.scratch_bytes : cut.room.pool_bytes);
    EXPECT_LE(
        divided_up(g.slice * cut.element, 8) * 8 * static_cast<uint64_t>(cut.image.step_chunks),
        cut.room.packet_bytes);
    EXPECT_LE(cut.fifos(), kLanePackets * sizeof(Packet));
    return;
  }
  EXPECT_GE(g.slots, cut.room.slots);
  EXPECT_GE(g.slots, static_cast<uint32_t>(cut.image.fifo_depth));
  const uint64_t scratch = static_cast<uint64_t>(cut.image.scratch_chunks) * g.chunk * cut.element;
  EXPECT_LE(cut.fifos(), g.scratch_at);
  EXPECT_LE(g.scratch_at, cut.room.pool_bytes);
  EXPECT_LE(g.scratch_at + scratch, cut.room.pool_bytes + cut.room.scratch_bytes);
}

TEST(LaneGeometry, MovesEverythingOnceAndFitsIntoThePool) {
  Random random(mix(test_seed(), 41));
  int packets = 0, parts = 0, refused = 0;
  const int samples = test_samples(2000);
  for (int i = 0; i < samples; i++) {
    Cut cut{random_image(random), random_room(random), 1, 1, {}};
    cut.element = 1u << random.below(4);
    cut.count = of_any_size(random, 22);
    if (cut.image.uniform_only)
      cut.count = divided_up(cut.count, static_cast<uint64_t>(cut.image.chunks)) *
                  static_cast<uint64_t>(cut.image.chunks);
    try {
      cut.g = cuda::lane_geometry(cut.image, cut.room, cut.count, cut.element);
    } catch (const Error&) {
      refused++;
      continue;
    }
    expect_covered(cut);
    expect_fits(cut);
    packets += cut.g.packets ? 1 : 0;
    parts += cut.g.part < cut.count ? 1 : 0;
    ASSERT_FALSE(testing::Test::HasFailure())
        << cut.image.chunks << " chunks, " << cut.count << " elements of " << cut.element;
  }
  EXPECT_GT(packets, 0);
  EXPECT_GT(parts, 0) << "scratch memory makes several parts";
  EXPECT_LT(refused, samples / 2);
}

LaneImage ring_of_eight() {
  LaneImage image;
  image.chunks = 8;
  image.most_ports = 1;
  image.most_messages = 14;
  return image;
}

// Eager calls: every message has a slot, and all lie in one half of the room for them.
TEST(LaneGeometry, MakesSmallCallsEagerIfAllMessagesFit) {
  LaneImage image = ring_of_eight();
  LaneRoom room;
  room.blocks = 4;
  room.pool_bytes = 16 << 20;
  room.fifo_bytes = 1 << 20;
  uint64_t largest = 0;
  for (const uint64_t half : {uint64_t{0}, uint64_t{64} << 10, uint64_t{256} << 10})
    for (const int ports : {1, 3, 400, 2000})
      for (uint64_t count = 1; count < 1 << 20; count = count * 3 + 1) {
        image.most_ports = static_cast<uint32_t>(ports);
        room.eager_bytes = half;
        const LaneGeometry g = lane_geometry(image, room, count, 4);
        const uint64_t messages = uint64_t{g.iterations} * image.most_messages,
                       all = static_cast<uint64_t>(ports) * g.instances;
        const bool fits = all * messages * g.slot_bytes <= half && all <= cuda::kMostEagerPorts &&
                          messages <= cuda::kMostEagerMessages;
        EXPECT_EQ(g.eager, fits) << half << ' ' << ports << ' ' << count;
        if (!g.eager) continue;
        EXPECT_EQ(g.slots, messages);
        EXPECT_LE(all * g.slots * g.slot_bytes, g.scratch_at);
        largest = std::max(largest, count);
      }
  EXPECT_GT(largest, 1000u);
}

// Whether steps of several chunks may be moved as one.
TEST(LaneGeometry, KnowsWhetherChunksLieEndToEnd) {
  LaneImage image = ring_of_eight();
  image.chunks = 4;
  image.step_chunks = 2;
  LaneGeometry g;
  g.part = 256;
  g.chunk = g.slice = 64;
  const auto whole = [&](uint64_t count, uint64_t stride, uint32_t element) {
    return cuda::chunks_are_whole(image, g, count, stride, element);
  };
  EXPECT_TRUE(whole(256, 256, 1));
  EXPECT_FALSE(whole(256, 300, 1)) << "gaps between blocks";
  EXPECT_FALSE(whole(250, 250, 1)) << "the last chunk is shorter";
  EXPECT_FALSE(whole(512, 512, 1)) << "several parts";
  for (const auto& change : std::vector<std::function<void(LaneGeometry&)>>{
           [](LaneGeometry& other) { other.instances = 2; },
           [](LaneGeometry& other) { other.iterations = 2; },
           [](LaneGeometry& other) { other.slice = 32; }}) {
    const LaneGeometry before = g;
    change(g);
    EXPECT_FALSE(whole(256, 256, 1)) << g.instances << g.iterations << g.slice;
    g = before;
  }
  image.uniform_only = true;  // chunks of any length
  g.part = 36;
  g.chunk = g.slice = 9;
  EXPECT_TRUE(whole(36, 36, 1));
  g.packets = true;
  EXPECT_FALSE(whole(36, 36, 1)) << "a packet has eight bytes of one chunk";
  EXPECT_TRUE(whole(36, 36, 8));
}

LaneRoom usual_room() {
  LaneRoom room;
  room.blocks = 16;
  room.pool_bytes = 32 << 20;
  room.fifo_bytes = 128 << 10;
  room.packet_bytes = 16 << 10;
  return room;
}

// Small eager calls of several chunks take one instance, if that makes a round of them.
TEST(LaneGeometry, MovesSmallEagerCallsInOneGo) {
  LaneImage image = ring_of_eight();
  image.chunks = 1;
  image.step_chunks = 4;
  image.most_lanes = 4;
  LaneRoom room = usual_room();
  room.packet_bytes = 8 << 10;
  for (const bool eager : {false, true}) {
    room.eager_bytes = eager ? 256 << 10 : 0;
    for (const uint64_t count : {250, 256, 512}) {
      const LaneGeometry g = lane_geometry(image, room, count, 4);
      EXPECT_TRUE(g.packets) << eager << count;
      const bool whole = eager && count % 16 == 0;
      EXPECT_EQ(g.instances == 1, whole) << eager << count;
      EXPECT_EQ(cuda::chunks_are_whole(image, g, count, count, 4), whole) << eager << count;
    }
  }
}

TEST(LaneGeometry, TakesPacketsForSmallMessagesOnly) {
  const LaneImage image = ring_of_eight();
  LaneRoom room = usual_room();
  EXPECT_TRUE(cuda::lane_geometry(image, room, 1, 4).packets);
  EXPECT_TRUE(cuda::lane_geometry(image, room, 1 << 14, 4).packets);
  EXPECT_FALSE(cuda::lane_geometry(image, room, 1 << 24, 4).packets) << "messages are large";
  room.packet_bytes = 0;
  EXPECT_FALSE(cuda::lane_geometry(image, room, 1, 4).packets) << "a rank cannot use them";
  room.packet_bytes = cuda::packet_messages(true, false, false, 1 << 20);
  EXPECT_TRUE(cuda::lane_geometry(image, room, 1, 4).packets);
  for (const auto& [reach, arrays] : {std::pair{true, 0}, {false, 1 << 20}}) {
    room.packet_bytes = cuda::packet_messages(reach, false, false, static_cast<size_t>(arrays));
    EXPECT_FALSE(cuda::lane_geometry(image, room, 1, 4).packets) << "WEFT_PACKET_BYTES=" << arrays;
  }
  // Between hosts packets are eager, as many as their memory holds.
  EXPECT_EQ(cuda::packet_messages(true, true, false, 1 << 20), 0u);
  room.packet_bytes = cuda::packet_messages(true, true, true, 1 << 20);
  room.eager_bytes = 64 << 10;
  const auto small = cuda::lane_geometry(image, room, 1, 4);
  EXPECT_TRUE(small.packets && small.eager);
  EXPECT_FALSE(cuda::lane_geometry(image, room, 1 << 14, 4).packets) << "WEFT_EAGER_BYTES=64K";
  LaneImage many = image;
  many.most_messages = kLanePackets;
  EXPECT_FALSE(cuda::lane_geometry(many, usual_room(), 1, 4).packets) << "too few slots";
  LaneImage scratch = image;
  scratch.scratch_chunks = 1;
  EXPECT_TRUE(cuda::lane_geometry(scratch, usual_room(), 1, 4).packets);
}

// Hosts of two ranks, of eight ranks: an all_reduce by hosts.
TEST(LaneGeometry, HasLargeMessagesInLongCallsBetweenHosts) {
  LaneImage image;
  image.chunks = 8;
  image.most_lanes = 5;
  image.most_ports = 8;
  image.scratch_chunks = 1;
  image.fifo_depth = 2;
  LaneRoom room;
  room.blocks = 16;
  room.pool_bytes = 16 << 20;
  room.fifo_bytes = 1 << 20;
  room.least_bytes = 64 << 10;
  LaneRoom large = room;
  large.large_messages = true;
  large.scratch_bytes = 16 << 20;
  const auto slice = [&](const LaneRoom& given, uint64_t bytes) {
    return cuda::lane_geometry(image, given, bytes / 4, 4).slice * 4;
  };
  EXPECT_LT(slice(room, 32 << 20), 96u << 10);
  EXPECT_GT(slice(large, 32 << 20), 192u << 10);
  for (const uint64_t bytes : {uint64_t{2} << 20, uint64_t{32} << 20})
    EXPECT_EQ(cuda::lane_geometry(image, large, bytes / 4, 4).instances, 2u);
}

TEST(LaneGeometry, HasMoreInstancesOfALaneForLargerMessages) {
  const LaneImage image = ring_of_eight();
  uint32_t last = 1;
  for (uint64_t count = 1 << 10; count <= 1 << 24; count *= 4) {
    const uint32_t instances = cuda::lane_geometry(image, usual_room(), count, 4).instances;
    EXPECT_GE(instances, count > 1 << 17 ? last : 1);
    last = instances;
  }
  EXPECT_EQ(last, usual_room().blocks);
}

// Four hosts of a rank each. All messages between them are coded.
LaneImage coded_hosts(const char* codec) {
  LaneImage image;
  image.chunks = 4;
  image.most_ports = 6;
  image.most_messages = 1;
  image.codecs = {parse_codec_spec(codec)};
  image.all_coded = true;
  return image;
}

TEST(LaneGeometry, SlotsHoldMoreOfCodedMessages) {
  LaneImage image = coded_hosts("int8");
  const LaneGeometry coded = cuda::lane_geometry(image, usual_room(), 32 << 20, 4);
  EXPECT_LE(encoded_bytes(image.codecs[0], coded.slice, 4), coded.slot_bytes);
  image.all_coded = false;
  const LaneGeometry plain = cuda::lane_geometry(image, usual_room(), 32 << 20, 4);
  EXPECT_GT(coded.slice, 3 * plain.slice);
  EXPECT_LE(coded.slot_bytes, usual_room().fifo_bytes / coded.slots);
}

// Then kernels store codes in whole vectors.
TEST(LaneGeometry, CodesAreAlignedInSlots) {
  for (const char* codec : {"int8", "int4:block=64", "fp8:block=1024", "onebit:block=16"}) {
    const LaneImage image = coded_hosts(codec);
    for (const uint64_t count : {1 << 14, 100'000, 32 << 20}) {
      const LaneGeometry g = cuda::lane_geometry(image, usual_room(), count, 4);
      EXPECT_EQ(image.codecs[0].blocks(g.slice) % 4, 0u) << codec << ' ' << count;
    }
  }
}

// What a schedule needs goes before WEFT_LANE_FIFO_BYTES.
TEST(LaneGeometry, EnlargesFifosForDeepSchedules) {
  LaneImage image = ring_of_eight();
  image.fifo_depth = 2048;
  const LaneGeometry g = cuda::lane_geometry(image, usual_room(), 1 << 20, 4);
  EXPECT_EQ(g.slots, 2048u);
  EXPECT_GT(uint64_t{g.slots} * g.slot_bytes, usual_room().fifo_bytes);
}

std::string refusal(const LaneImage& image, const LaneRoom& room) {
  try {
    cuda::lane_geometry(image, room, 1 << 20, 4);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LaneGeometry, SaysWhatDoesNotFit) {
  LaneImage image = ring_of_eight();
  image.scratch_chunks = 1 << 20;
  EXPECT_EQ(refusal(image, usual_room()),
            "1048576 chunks of scratch memory do not fit into 16777216 bytes "
            "(WEFT_SCRATCH_BYTES)");
  image = ring_of_eight();
  image.fifo_depth = 1 << 20;
  EXPECT_EQ(refusal(image, usual_room()),
            "FIFOs for 1 ports with 1048576 messages of 1 chunks each do not fit into 33550336 "
            "bytes (WEFT_SCRATCH_BYTES)");
  image = ring_of_eight();
  image.most_ports = kMostLanePorts + 1;
  EXPECT_EQ(refusal(image, usual_room()), "a rank has 8193 ports; kernels do 8192");
}

TEST(DealtItems, AreEachOfOneBlock) {
  for (const uint32_t blocks : {1u, 2u, 7u, 15u, 32u})
    for (uint32_t items = 0; items < 100; items++) {
      std::vector<int> dealt(items, 0);
      for (uint32_t block = 0; block < blocks; block++)
        for (uint32_t i = 0; i < cuda::dealt_items(items, block, blocks); i++)
          dealt.at(cuda::dealt_item(i, block, blocks))++;
      EXPECT_EQ(std::ranges::count(dealt, 1), items) << blocks << " blocks";
    }
}

// The work of the busiest block, in units of a block's share.
double busiest(const std::vector<uint64_t>& weights, uint32_t instances, uint32_t blocks) {
  double most = 0, all = 0;
  for (uint32_t block = 0; block < blocks; block++) {
    double load = 0;
    const auto items = static_cast<uint32_t>(weights.size()) * instances;
    for (uint32_t i = 0; i < cuda::dealt_items(items, block, blocks); i++)
      load += static_cast<double>(weights[cuda::dealt_item(i, block, blocks) / instances]);
    most = std::max(most, load);
    all += load;
  }
  return most * blocks / all;
}

// Of each of eight ranks that share a GPU.
LaneRoom room_of_eight() {
  LaneRoom room;
  room.blocks = 15;
  room.pool_bytes = 32 << 20;
  room.fifo_bytes = 1 << 20;
  return room;
}

// Lanes of schedules for a DGX-1V, a DGX-2 and an MI250 on the blocks of a rank of a shared GPU.
TEST(BalancedInstances, KeepBlocksEquallyBusy) {
  std::vector<uint64_t> dgx1v(4, 40), dgx2(4, 18), mi250{54, 54, 28, 28, 14, 14};
  dgx1v.insert(dgx1v.end(), {28, 28, 28, 28, 14, 14, 14, 14, 14, 14, 14, 14});
  dgx1v.resize(32, 0);
  dgx2.resize(64, 0);
  mi250.resize(12, 0);
  for (const auto& [weights, blocks] : {std::pair(dgx1v, 15u), {dgx2, 7u}, {mi250, 7u}}) {
    const uint32_t instances = cuda::balanced_instances(weights, blocks);
    EXPECT_GT(busiest(weights, 1, blocks), 1.5);
    EXPECT_LT(busiest(weights, instances, blocks), 1.25);
    EXPECT_LE(instances, 4u);
  }
}

TEST(BalancedInstances, AreAsManyAsThereAreBlocksForIfThatIsEven) {
  EXPECT_EQ(cuda::balanced_instances({5}, 15), 15u);
  EXPECT_EQ(cuda::balanced_instances({3, 3, 3, 3}, 32), 8u);
  EXPECT_EQ(cuda::balanced_instances(std::vector<uint64_t>(64, 2), 32), 1u);
  EXPECT_EQ(cuda::balanced_instances({}, 32), 0u);
}

TEST(LaneSizes, AreCountedForTheBlockThatHasMost) {
  const std::vector<cuda::LaneSize> sizes{{1000, 500}, {100, 0}, {64, 16}};
  EXPECT_EQ(cuda::most_lane_bytes(sizes, 1, 1), 1680u);
  EXPECT_EQ(cuda::most_lane_bytes(sizes, 1, 3), 1500u);
  EXPECT_EQ(cuda::most_lane_bytes(sizes, 1, 2), 1500u);  // the last two are of one block
  EXPECT_EQ(cuda::most_lane_bytes(sizes, 2, 1), 3360u);
}

// Blocks that have one instance each are done at the same time.
TEST(LaneGeometry, GivesInstancesOfRingsAsMuchAsEachOther) {
  LaneImage image;
  image.chunks = 8;
  image.most_ports = 1;
  image.most_messages = 14;
  const LaneRoom room = room_of_eight();
  for (const uint64_t bytes : {8u << 20, 16u << 20, 64u << 20, 256u << 20}) {
    const LaneGeometry g = cuda::lane_geometry(image, room, bytes / 4, 4);
    EXPECT_EQ(g.instances, 15u);
    EXPECT_LT(static_cast<double>(g.slice * g.iterations * g.instances),
              1.01 * static_cast<double>(g.chunk))
        << bytes;
  }
}

TEST(LaneGeometry, TakesWholeRoundsOfABlocksWarpsWhereABlockHasSeveralItems) {
  LaneImage image;
  image.chunks = 96;
  image.most_lanes = 32;
  image.most_ports = 16;
  image.most_messages = 14;
  const LaneRoom room = room_of_eight();
  EXPECT_EQ(cuda::lane_geometry(image, room, 16 << 20, 4).slice * 4 % (30 << 10), 0u);
  image.uniform_only = true;
  EXPECT_NE(cuda::lane_geometry(image, room, 16 << 20, 4).slice * 4 % (30 << 10), 0u);
}

// They do not make messages small.
TEST(BalancedInstances, AreForLongCalls) {
  LaneImage image;
  image.most_lanes = 32;
  image.most_ports = 16;
  image.most_messages = 8;
  image.instances = 3;
  const LaneRoom room = room_of_eight();
  EXPECT_EQ(cuda::lane_geometry(image, room, 32 << 10, 4).instances, 2u);
  EXPECT_EQ(cuda::lane_geometry(image, room, 16 << 10, 4).instances, 1u);
  EXPECT_EQ(cuda::lane_geometry(image, room, 1 << 20, 4).instances, 3u);
  image.most_ports = 120;
  EXPECT_EQ(cuda::lane_geometry(image, room, 1 << 20, 4).instances, 1u);
}

// What predictions take for the cut of GPUs of one host is the cut.
TEST(LaneCuts, AreTheOnesOfTheKernel) {
  int cuts = 0;
  for (const Generator* generator : {&kRing, &kDirect, &kRecursive}) {
    const Collective c{CollectiveKind::kAllReduce, 8, 0};
    const VerifiedSchedule verified = verify(generator->make(c, false), false, 2);
    const LaneCut cut;
    LaneRoom room;
    room.blocks = static_cast<uint32_t>(cut.blocks);
    room.pool_bytes = static_cast<uint64_t>(cut.pool_bytes);
    room.fifo_bytes = static_cast<uint64_t>(cut.fifo_bytes);
    for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{1} << 24, uint64_t{1} << 30}) {
      LaneImage image = cuda::lane_image(verified, nullptr, 0, verified.fifo_depth(), false);
      image.instances = cuda::balanced_instances(image.weights, room.blocks);
      const LaneGeometry g = cuda::lane_geometry(image, room, bytes / 4, 4);
      const double chunk = static_cast<double>(bytes) / verified.schedule().chunks;
      const double said = bytes_per_pass(cut, ScheduleGraph(verified.schedule(), false), chunk),
                   is = static_cast<double>(g.slice * 4 * g.instances);
      // A call that fits into one pass is not cut at all, and slices are made equal.
      if (said >= chunk) continue;
      EXPECT_NEAR(is / said, 0.85, 0.25) << generator->name << ' ' << bytes;
      cuts++;
    }
  }
  EXPECT_GT(cuts, 2);
  for (const bool several_hosts : {false, true})
    EXPECT_EQ(usual_cut(several_hosts).pool_bytes, cuda::lane_pool_bytes(0, several_hosts));
}

}  // namespace
}  // namespace weft::test
