// Frames of the control connections, from a stream that arrives in pieces.
#include "src/comm/frame.h"

#include <gtest/gtest.h>

#include "tests/support/sampling.h"

namespace weft::test {
namespace {

std::vector<Frame> some_frames() {
  return {{Frame::kGather, 8, 3, "a blob"},
          {Frame::kLeave, -1, 0, ""},
          {Frame::kFailed, 2, 1ull << 60, std::string(5000, 'x')},
          {Frame::kAbort, 0, 7, std::string("with\0a zero", 11)}};
}

void expect_same(const Frame& got, const Frame& expected) {
  EXPECT_EQ(got.type, expected.type);
  EXPECT_EQ(got.value, expected.value);
  EXPECT_EQ(got.number, expected.number);
  EXPECT_EQ(got.text, expected.text);
}

TEST(Frames, SurviveAnyCuttingOfTheStream) {
  const std::vector<Frame> frames = some_frames();
  std::string stream;
  for (const Frame& frame : frames) stream += frame.encode();
  Random random(test_seed());
  for (int round = 0; round < 200; round++) {
    FrameReader reader;
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
  const std::string bytes = Frame{Frame::kGathered, 1, 2, "text"}.encode();
  FrameReader reader;
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
  std::string bad = good.encode();
  const uint64_t size = Frame::kLargest + 1;
  std::memcpy(bad.data() + 16, &size, sizeof size);
  FrameReader reader;
  const std::string stream = good.encode() + bad + good.encode();
  reader.append(stream.data(), stream.size());
  Frame frame;
  EXPECT_TRUE(reader.next(frame));
  EXPECT_FALSE(reader.broken());
  EXPECT_FALSE(reader.next(frame));
  EXPECT_TRUE(reader.broken());
  EXPECT_FALSE(reader.next(frame)) << "nothing comes after what is no frame";
}

}  // namespace
}  // namespace weft::test
