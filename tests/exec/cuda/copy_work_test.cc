// The order of copies in copy-engine mode, on simulated streams: data arrives, and no stream waits
// for ever.
#include "src/exec/cuda/copy_work.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>

#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using cuda::CopyPiece;
using cuda::CopyWork;
using cuda::kCopySlots;
using cuda::OwnCopy;

constexpr size_t kSlot = 16;

// Memory that ranks share: slots, and a word per slot and side.
struct Shared {
  explicit Shared(int n) : ranks(n), pairs(static_cast<size_t>(n * n * kCopySlots)) {}
  struct Pair {
    bool full = false, empty = true;
    std::byte data[kSlot];
  };
  Pair& at(int receiver, int sender, int slot) {
    return pairs[static_cast<size_t>((receiver * ranks + sender) * kCopySlots + slot)];
  }
  int ranks;
  std::vector<Pair> pairs;
};

// One operation of one rank: a list of steps per stream. A step returns false if it has to wait.
using StreamStep = std::function<bool()>;
using Streams = std::vector<std::vector<StreamStep>>;

class Recorder : public cuda::CopyQueue {
 public:
  Recorder(Shared& shared, int rank, int streams) : shared_(shared), rank_(rank) {
    recorded.resize(static_cast<size_t>(streams));
  }
  void copy_own(const OwnCopy& copy) override {
    copy_in_halves(recorded.front(), copy.destination, copy.source, copy.bytes);
  }
  void send(std::span<const CopyPiece> pieces) override {
    auto& stream = recorded.front();
    for (const CopyPiece& p : pieces) take(stream, at(p.peer, rank_, p.slot).empty);
    for (const CopyPiece& p : pieces)
      copy_in_halves(stream, at(p.peer, rank_, p.slot).data, p.pointer, p.bytes);
    for (const CopyPiece& p : pieces) give(stream, at(p.peer, rank_, p.slot).full);
  }
  void receive(std::span<const CopyPiece> pieces) override {
    auto& stream = recorded.back();
    for (const CopyPiece& p : pieces) take(stream, at(rank_, p.peer, p.slot).full);
    for (const CopyPiece& p : pieces)
      copy_in_halves(stream, p.pointer, at(rank_, p.peer, p.slot).data, p.bytes);
    for (const CopyPiece& p : pieces) give(stream, at(rank_, p.peer, p.slot).empty);
  }
  Streams recorded;

 private:
  Shared::Pair& at(int receiver, int sender, int slot) {
    return shared_.at(receiver, sender, slot);
  }
  static void take(std::vector<StreamStep>& stream, bool& word) {
    stream.push_back([&word] { return word && !(word = false); });
  }
  static void give(std::vector<StreamStep>& stream, bool& word) {
    stream.push_back([&word] {
      EXPECT_FALSE(word) << "nobody has waited for the last time";
      return word = true;
    });
  }
  // Copies in two steps, so that another step can run in between.
  static void copy_in_halves(std::vector<StreamStep>& stream, std::byte* to, const std::byte* from,
                             size_t bytes) {
    EXPECT_GT(bytes, 0u);
    const size_t half = bytes / 2;
    stream.push_back([=] { return std::memcpy(to, from, half) != nullptr; });
    stream.push_back([=] { return std::memcpy(to + half, from + half, bytes - half) != nullptr; });
  }
  Shared& shared_;
  int rank_;
};

// Runs every rank's operations in order, with a random order between ranks and streams. Returns
// false if all of them wait.
bool run(const std::vector<std::vector<Streams>>& ranks, Random& random) {
  struct Place {
    size_t operation = 0;
    std::vector<size_t> steps;
  };
  std::vector<Place> places(ranks.size());
  const auto finish_operations = [&](size_t r) {
    Place& place = places[r];
    while (place.operation < ranks[r].size()) {
      const Streams& streams = ranks[r][place.operation];
      place.steps.resize(streams.size());
      for (size_t s = 0; s < streams.size(); s++)
        if (place.steps[s] < streams[s].size()) return;
      place.operation++;
      place.steps.clear();
    }
  };
  const auto advance = [&](size_t r, size_t s) {
    finish_operations(r);
    Place& place = places[r];
    if (place.operation == ranks[r].size() || s >= place.steps.size()) return false;
    const std::vector<StreamStep>& steps = ranks[r][place.operation][s];
    if (place.steps[s] == steps.size() || !steps[place.steps[s]]()) return false;
    place.steps[s]++;
    return true;
  };
  const auto is_done = [&] {
    bool done = true;
    for (size_t r = 0; r < ranks.size(); r++) {
      finish_operations(r);
      done = done && places[r].operation == ranks[r].size();
    }
    return done;
  };
  while (!is_done()) {
    bool moved = false;
    for (int i = 0; i < 50; i++) moved |= advance(random.below(ranks.size()), random.below(2));
    for (size_t r = 0; r < ranks.size() && !moved; r++) moved = advance(r, 0) || advance(r, 1);
    if (!moved) return false;
  }
  return true;
}

std::byte content(int id, int owner, size_t at) {
  return static_cast<std::byte>(
      mix(static_cast<uint64_t>(id), static_cast<uint64_t>(owner), uint64_t{at}));
}

// A collective on its own buffers.
class Played {
 public:
  // Blocks begin `gap` bytes after the one before.
  Played(Shared& shared, const Collective& c, size_t block, size_t gap, int streams, bool in_place)
      : collective_(c), block_(block), stride_(block + gap) {
    for (int r = 0; r < c.nranks; r++) {
      const Collective::Overlap overlap = c.overlap(r, 1);
      in_.emplace_back(static_cast<size_t>(c.input_blocks(r)) * stride_);
      out_.emplace_back(static_cast<size_t>(c.output_blocks(r)) * stride_);
      std::byte *input = in_.back().data(), *output = out_.back().data();
      if (in_place && !in_.back().empty() && !out_.back().empty()) {
        if (in_.back().size() > out_.back().size()) {
          output = input + static_cast<size_t>(overlap.output_at) * stride_;
        } else {
          input = output + static_cast<size_t>(overlap.input_at) * stride_;
        }
      }
      inputs_.push_back(input);
      outputs_.push_back(output);
      const CopyWork work = cuda::copy_work(c, r, input, output, block, stride_);
      Recorder recorder(shared, r, work.in_place ? 1 : streams);
      cuda::run_copies(work, kSlot, recorder);
      recorded.push_back(recorder.recorded);
    }
  }
  void fill() {
    for (int r = 0; r < collective_.nranks; r++) {
      std::fill(out_[static_cast<size_t>(r)].begin(), out_[static_cast<size_t>(r)].end(),
                std::byte{0xee});
      for (int b = 0; b < collective_.input_blocks(r); b++)
        for (size_t i = 0; i < block_; i++)
          inputs_[static_cast<size_t>(r)][static_cast<size_t>(b) * stride_ + i] =
              content(collective_.start(r, b, 1).id, r, i);
    }
  }
  void check() const {
    for (int r = 0; r < collective_.nranks; r++)
      for (int b = 0; b < collective_.output_blocks(r); b++) {
        const ChunkGoal goal = collective_.goal(r, b, 1);
        for (size_t i = 0; i < block_; i++)
          ASSERT_EQ(outputs_[static_cast<size_t>(r)][static_cast<size_t>(b) * stride_ + i],
                    content(goal.id, goal.contributor, i))
              << name(collective_.kind) << " of " << collective_.nranks << " root "
              << collective_.root << ", " << block_ << " bytes: block " << b << " of rank " << r
              << " at " << i;
      }
  }
  std::vector<Streams> recorded;  // [rank]

 private:
  Collective collective_;
  size_t block_, stride_;
  std::vector<std::vector<std::byte>> in_, out_;
  std::vector<std::byte*> inputs_, outputs_;
};

const std::vector<CollectiveKind> kMoving = {CollectiveKind::kBroadcast, CollectiveKind::kAllGather,
                                             CollectiveKind::kAllToAll, CollectiveKind::kGather,
                                             CollectiveKind::kScatter};

TEST(CopyWork, BringsEveryBlockWhereTheCollectiveWantsIt) {
  Random random(test_seed());
  for (const CollectiveKind kind : kMoving)
    for (const int n : {1, 2, 3, 5, 8})
      for (const size_t block : {size_t{1}, kSlot - 1, kSlot, 2 * kSlot + 1, 7 * kSlot + 5})
        for (const int streams : {1, 2})
          for (const bool in_place : {false, true}) {
            Shared shared(n);
            Played one(shared, {kind, n, n / 2}, block, random.below(3) * 100, streams, in_place);
            std::vector<std::vector<Streams>> ranks;
            for (const Streams& s : one.recorded) ranks.push_back({s});
            for (int replay = 0; replay < 3; replay++) {  // as graphs do
              one.fill();
              ASSERT_TRUE(run(ranks, random)) << name(kind) << " of " << n << " waits for ever";
              one.check();
            }
            if (testing::Test::HasFatalFailure()) return;
          }
}

TEST(CopyWork, MayFollowOtherWorkWithoutWaitingForAllRanks) {
  Random random(test_seed());
  for (int sample = test_samples(60); sample > 0; sample--) {
    const int n = 2 + static_cast<int>(random.below(6));
    Shared shared(n);
    std::vector<std::unique_ptr<Played>> runs;
    std::vector<std::vector<Streams>> ranks(static_cast<size_t>(n));
    for (int i = 0; i < 8; i++) {
      const Collective c{random.pick(kMoving), n,
                         static_cast<int>(random.below(static_cast<uint64_t>(n)))};
      runs.push_back(std::make_unique<Played>(shared, c, 1 + random.below(6 * kSlot), 0,
                                              1 + static_cast<int>(random.below(2)), false));
      runs.back()->fill();
      for (size_t r = 0; r < ranks.size(); r++) ranks[r].push_back(runs.back()->recorded[r]);
    }
    ASSERT_TRUE(run(ranks, random)) << n << " ranks wait for ever";
    for (const auto& one : runs) one->check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Any rank may have a message of any length for any other.
TEST(CopyWork, BringsMessagesOfAnyLengths) {
  Random random(test_seed());
  for (int sample = test_samples(100); sample > 0; sample--) {
    const int n = 2 + static_cast<int>(random.below(5));
    Shared shared(n);
    std::vector<std::vector<Streams>> ranks(static_cast<size_t>(n));
    std::vector<CopyWork> works(static_cast<size_t>(n));
    struct Message {
      std::vector<std::byte> sent, received;
    };
    std::vector<std::unique_ptr<Message>> messages;
    for (int from = 0; from < n; from++)
      for (int to = 0; to < n; to++) {
        const size_t bytes = random.below(3) == 0 ? 0 : 1 + random.below(9 * kSlot);
        if (from == to || bytes == 0) continue;
        Message& m = *messages.emplace_back(std::make_unique<Message>());
        for (size_t i = 0; i < bytes; i++) m.sent.push_back(content(from, to, i));
        m.received.resize(bytes);
        works[static_cast<size_t>(from)].sends.push_back({m.sent.data(), bytes, to});
        works[static_cast<size_t>(to)].receives.push_back({m.received.data(), bytes, from});
      }
    for (int r = 0; r < n; r++) {
      Recorder recorder(shared, r, 1 + static_cast<int>(random.below(2)));
      cuda::run_copies(works[static_cast<size_t>(r)], kSlot, recorder);
      ranks[static_cast<size_t>(r)].push_back(recorder.recorded);
    }
    ASSERT_TRUE(run(ranks, random)) << n << " ranks wait for ever";
    for (const auto& m : messages) ASSERT_EQ(m->sent, m->received);
  }
}

TEST(CopyWork, LeavesDataAloneThatIsWhereItShouldBe) {
  std::byte memory[64] = {};
  const CopyWork gathered =
      cuda::copy_work({CollectiveKind::kAllGather, 4, 0}, 1, memory + 16, memory, 16, 16);
  EXPECT_TRUE(gathered.own.empty());
  EXPECT_EQ(gathered.sends.size(), 3u);
  EXPECT_EQ(gathered.receives.size(), 3u);
  EXPECT_FALSE(gathered.in_place);
  EXPECT_TRUE(
      cuda::copy_work({CollectiveKind::kAllToAll, 4, 0}, 1, memory, memory, 16, 16).in_place);
}

}  // namespace
}  // namespace weft::test
