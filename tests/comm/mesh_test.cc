// The streams of two ranks on different hosts, which threads play: FIFOs, lanes, and both.
#include "src/comm/mesh.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "src/comm/cluster.h"
#include "src/comm/unique_id.h"
#include "src/transport/fifo_ends.h"
#include "src/transport/proxy.h"
#include "tests/support/threads.h"
#include "tests/transport/lane_ends.h"

namespace weft::test {
namespace {

constexpr int kPlanChannels = 4;
constexpr size_t kWordBytes = 4096, kArea = kWordBytes + (size_t{1} << 20);

// A GPU rings no bell.
class Polling {
 public:
  explicit Polling(const Mesh& mesh) {
    for (const NetworkLinks::Link& link : mesh.network_links())
      proxies_.push_back(&link.stream->proxy());
    for (Proxy* proxy : proxies_) proxy->keep_polling(true);
  }
  ~Polling() {
    for (Proxy* proxy : proxies_) proxy->keep_polling(false);
  }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

 private:
  std::vector<Proxy*> proxies_;
};

void with_meshes(NetLanes lanes, const std::function<void(int rank, Mesh& mesh)>& fn) {
  const Config config = Config::from_environment();
  const UniqueId id = UniqueId::create();
  const ImportedSchedules none;
  std::atomic<bool> gone[2][2] = {};
  run_threads(2, [&](int rank) {
    const Deadline deadline = in_seconds(60);
    ControlChannel control(id.candidates(host_identity(config)), id.secret, rank, 2, deadline,
                           [](const News&) {});
    MeshPlan plan{gather_infos(control, config, none, "", "", deadline),
                  0,
                  kPlanChannels,
                  kArea,
                  lanes,
                  kWordBytes,
                  none};
    for (size_t r = 0; r < 2; r++) plan.infos[r].host = plan.infos[r].process = r + 1;
    Mesh mesh(control, id.secret, rank, plan, config, {}, deadline, gone[rank]);
    {
      const Polling polling(mesh);
      fn(rank, mesh);
      control.all_gather("done", deadline);
      mesh.drain(10);
    }
    control.all_gather("drained", deadline);
    control.leave();
  });
}

bool comes(const std::function<bool()>& condition) {
  for (int tries = 0; tries < 20000 && !condition(); tries++)
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  return condition();
}

// Sends a number to the other rank and gets its number.
void exchange_by_fifo(int rank, Mesh& mesh, int channel, uint64_t salt) {
  SendPort& out = mesh.sender(1 - rank, channel);
  RecvPort& in = mesh.receiver(1 - rank, channel);
  ASSERT_NE(out.stream, nullptr) << "channel " << channel;
  ASSERT_NE(in.stream, nullptr) << "channel " << channel;
  MessageHeader* header = reserve_message(out, sizeof salt);
  ASSERT_NE(header, nullptr);
  *header = {};
  header->kind = MessageHeader::kInline;
  header->bytes = sizeof salt;
  const uint64_t mine = salt + static_cast<uint64_t>(rank);
  std::memcpy(reinterpret_cast<std::byte*>(header) + kFifoAlign, &mine, sizeof mine);
  post_message(out, sizeof salt);
  const MessageHeader* got = nullptr;
  ASSERT_TRUE(comes([&] { return (got = next_message(in)) != nullptr; })) << "channel " << channel;
  uint64_t theirs = 0;
  std::memcpy(&theirs, reinterpret_cast<const std::byte*>(got) + kFifoAlign, sizeof theirs);
  EXPECT_EQ(theirs, salt + static_cast<uint64_t>(1 - rank));
  consume_message(in);
}

// Sets word `number` of the other rank's area, and waits for its own.
void exchange_by_lane(int rank, Mesh& mesh, Poster& poster, uint32_t number, uint32_t value) {
  LanePost post;
  post.word = 8 * number;
  post.call = 7;
  post.value = value + static_cast<uint32_t>(rank);
  poster.post(post);
  const auto* word = reinterpret_cast<const uint64_t*>(mesh.area(rank)) + number;
  const uint64_t expected = uint64_t{7} << 32 | (value + static_cast<uint32_t>(1 - rank));
  EXPECT_TRUE(comes([&] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) == expected; }));
}

int channels_of_fifos() { return kPlanChannels + kChannels - kCollectiveChannels; }

TEST(Mesh, HasFifosAndLanesSideBySideWhereCompressedCallsRunAsLanes) {
  with_meshes(NetLanes::kCoded, [](int rank, Mesh& mesh) {
    EXPECT_EQ(mesh.network_links().size(),
              static_cast<size_t>(2 * (channels_of_fifos() + kLaneStreams)));
    std::vector<Poster> posters;
    for (int s = 0; s < kLaneStreams; s++) {
      ASSERT_NE(mesh.lane_stream(1 - rank, s), nullptr);
      EXPECT_EQ(mesh.lane_stream(rank, s), nullptr);
      posters.emplace_back(mesh.lane_stream(1 - rank, s)->posts());
    }
    for (uint32_t turn = 0; turn < 20; turn++) {
      for (int channel = 0; channel < channels_of_fifos(); channel++)
        exchange_by_fifo(rank, mesh, channel, 1000 * turn + static_cast<uint32_t>(channel));
      for (uint32_t s = 0; s < kLaneStreams; s++)
        exchange_by_lane(rank, mesh, posters[s], s, 10 * turn + 1);
    }
  });
}

TEST(Mesh, HasOnlyFifosOrOnlyLanesOtherwise) {
  with_meshes(NetLanes::kNone, [](int rank, Mesh& mesh) {
    EXPECT_EQ(mesh.network_links().size(), static_cast<size_t>(2 * channels_of_fifos()));
    EXPECT_EQ(mesh.lane_stream(1 - rank, 0), nullptr);
    exchange_by_fifo(rank, mesh, 0, 5);
    EXPECT_TRUE(mesh.network_copies());
    EXPECT_GT(mesh.network_facts().bytes_per_us, 0);
    EXPECT_EQ(mesh.network_facts().round_trip_us, 0) << "it is one machine";
  });
  with_meshes(NetLanes::kAll, [](int rank, Mesh& mesh) {
    EXPECT_EQ(mesh.network_links().size(), size_t{2 * kLaneStreams});
    EXPECT_EQ(mesh.sender(1 - rank, 0).stream, nullptr);
    Poster poster(mesh.lane_stream(1 - rank, 0)->posts());
    exchange_by_lane(rank, mesh, poster, 3, 5);
  });
}

}  // namespace
}  // namespace weft::test
