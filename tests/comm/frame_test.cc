// Frames of the control connections, from a stream that arrives in pieces.
#include "src/comm/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/sampling.h"

namespace weft::test {
namespace {

std::vector<Frame> some_frames() {
  return {{Frame::kGather, 8, 3, "a blob"},
          {Frame::kLeave, -1, 0, ""},
          {Frame::kFailed, 2, 1ull << 60, std::string(5000, 'x')},
          {Frame::kAbort, 0, 7, std::string("with\0a zero", 11)}};
}

const SessionKey kKey = {1, 2, 3};

void expect_same(const Frame& got, const Frame& expected) {
  EXPECT_EQ(got.type, expected.type);
  EXPECT_EQ(got.value, expected.value);
  EXPECT_EQ(got.number, expected.number);
  EXPECT_EQ(got.text, expected.text);
}

TEST(Frames, SurviveAnyCuttingOfTheStream) {
  const std::vector<Frame> frames = some_frames();
  std::string stream;
  FrameSealer sealer(kKey);
  for (const Frame& frame : frames) stream += sealer.seal(frame);
  Random random(test_seed());
  for (int round = 0; round < 200; round++) {
    FrameReader reader(kKey);
    size_t read = 0;
    for (size_t at = 0; at < stream.size();) {
      const size_t piece =
          std::min<size_t>(stream.size() - at, 1 + random.below(round < 100 ? 7 : 3000));
      reader.append(stream.data() + at, piece);
      at += piece;
      Frame frame;
      while (reader.next(frame)) {
        ASSERT_LT(read, frames.size());
        expect_same(frame, frames[read++]);
      }
      ASSERT_FALSE(reader.broken());
    }
    EXPECT_EQ(read, frames.size());
  }
}

TEST(Frames, AreNotThereBeforeTheirLastByte) {
  const std::string bytes = FrameSealer(kKey).seal({Frame::kGathered, 1, 2, "text"});
  FrameReader reader(kKey);
  Frame frame;
  for (size_t i = 0; i + 1 < bytes.size(); i++) {
    reader.append(bytes.data() + i, 1);
    ASSERT_FALSE(reader.next(frame)) << i;
  }
  reader.append(&bytes.back(), 1);
  EXPECT_TRUE(reader.next(frame));
  EXPECT_FALSE(reader.next(frame));
}

TEST(Frames, ThatClaimToBeHugeBreakTheStream) {
  const Frame good{Frame::kLeft, 1, 0, "fine"};
  FrameSealer sealer(kKey);
  std::string stream = sealer.seal(good);
  std::string bad = sealer.seal(good);
  const uint64_t size = Frame::kLargest + 1, coded = size | ~size << 32;
  std::memcpy(bad.data() + 16, &coded, sizeof coded);
  FrameReader reader(kKey);
  stream += bad + sealer.seal(good);
  reader.append(stream.data(), stream.size());
  Frame frame;
  EXPECT_TRUE(reader.next(frame));
  EXPECT_FALSE(reader.broken());
  EXPECT_FALSE(reader.next(frame));
  EXPECT_TRUE(reader.broken());
  EXPECT_FALSE(reader.next(frame)) << "nothing comes after what is no frame";
}

// How many frames a reader takes from these bytes, and whether it found them broken then.
std::pair<int, bool> read_all(const std::string& stream, const SessionKey& key = kKey) {
  FrameReader reader(key);
  reader.append(stream.data(), stream.size());
  Frame frame;
  int count = 0;
  while (reader.next(frame)) count++;
  return {count, reader.broken()};
}

using Read = std::pair<int, bool>;

TEST(SealedFrames, AreRefusedWhenAnyBitIsChanged) {
  const std::string good = FrameSealer(kKey).seal({Frame::kFailed, 1, 2, "why"});
  ASSERT_EQ(read_all(good), Read(1, false));
  for (size_t bit = 0; bit < good.size() * 8; bit++) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(read_all(bad), Read(0, true)) << "bit " << bit;  // it does not wait for more
  }
}

TEST(SealedFrames, AreRefusedFromAnotherConnection) {
  EXPECT_EQ(read_all(FrameSealer(kKey).seal({Frame::kLeave, 1, 0, ""}), SessionKey{9}),
            Read(0, true));
}

TEST(SealedFrames, AreRefusedWhenRepeatedLostOrExchanged) {
  FrameSealer sealer(kKey);
  std::vector<std::string> frames;
  for (int i = 0; i < 3; i++) frames.push_back(sealer.seal({Frame::kGather, 3, 7, "same"}));
  EXPECT_EQ(read_all(frames[0] + frames[1] + frames[2]), Read(3, false));
  EXPECT_EQ(read_all(frames[0] + frames[0]), Read(1, true));
  EXPECT_EQ(read_all(frames[0] + frames[2]), Read(1, true));
  EXPECT_EQ(read_all(frames[1] + frames[0]), Read(0, true));
}

TEST(SealedFrames, MayHaveTheirTextDigestedBefore) {
  const Frame frame{Frame::kGathered, 0, 5, std::string(3000, 'b')};
  EXPECT_EQ(FrameSealer(kKey).seal(frame, frame.text_digest()), FrameSealer(kKey).seal(frame));
}

}  // namespace
}  // namespace weft::test
