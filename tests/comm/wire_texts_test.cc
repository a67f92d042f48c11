// What ranks, rendezvous and hosts that help say to each other, when it is not what they say.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "src/base/error.h"
#include "src/comm/blobs.h"
#include "src/comm/help_words.h"

namespace weft::test {
namespace {

TEST(GatheredTexts, ComeBackAsTheyWere) {
  const std::vector<std::string> blobs = {"a", "", std::string(3000, 'x')};
  std::string text;
  for (const std::string& blob : blobs) append_blob(text, blob);
  EXPECT_EQ(split_blobs(text), blobs);
  PartialRound round;
  round.type = 9;
  round.blobs = {{0, "zero"}, {7, ""}};
  const auto again = PartialRound::decode(round.encode());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->type, 9u);
  EXPECT_EQ(again->blobs, round.blobs);
}

// A size near 2^64 wrapped to a place before the text's end, and reading never ended.
TEST(GatheredTexts, OfImpossibleSizesAreRefused) {
  for (const uint64_t size : {uint64_t{2}, UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 15}) {
    std::string text(reinterpret_cast<const char*>(&size), sizeof size);
    text += "1";
    EXPECT_FALSE(split_blobs(text)) << size;
    EXPECT_FALSE(PartialRound::decode(std::string(12, '\0') + text)) << size;
  }
  EXPECT_FALSE(split_blobs("1234567"));
}

TEST(GatheredTexts, OfNoRankOrTwiceOfOneAreRefused) {
  PartialRound round;
  round.blobs = {{1, ""}};
  const std::string good = round.encode();
  EXPECT_FALSE(PartialRound::decode(good + good.substr(4)));
  std::string bad = good;
  bad[11] = '\x80';  // the rank's highest byte
  EXPECT_FALSE(PartialRound::decode(bad));
}

std::string bytes_of(const HelpJob& job) { return weft::as_text(job); }

HelpJob some_job() {
  HelpJob job;
  job.count = 100;
  job.codec = parse_codec_spec("int8");
  return job;
}

TEST(HelpWords, TellAHelperOnlyWhatItCanDo) {
  EXPECT_EQ(read_job(bytes_of(some_job())).count, 100u);
  const auto refused = [](auto change) {
    HelpJob job = some_job();
    change(job);
    EXPECT_THROW(read_job(bytes_of(job)), Error);
  };
  refused([](HelpJob& job) { job.count = uint64_t{1} << 62; });
  refused([](HelpJob& job) { job.codec.block = 0; });
  refused([](HelpJob& job) { job.codec.kind = Codec::kWiden; });
  // The same codec as before, for a type that has none.
  refused([](HelpJob& job) { job.reduction.type = ncclInt32; });
  for (const size_t at :
       {offsetof(Reduction, type), offsetof(Reduction, op), offsetof(Reduction, premultiply)}) {
    std::string bytes = bytes_of(some_job());
    bytes[offsetof(HelpJob, reduction) + at] = 99;
    EXPECT_THROW(read_job(bytes), Error) << at;
  }
  EXPECT_THROW(read_job("short"), Error);
}

TEST(HelpWords, FollowNoAddressOfAnotherProcess) {
  HelpJob job = some_job();
  job.reduction.scalar_at = &job;
  EXPECT_EQ(read_job(bytes_of(job)).reduction.scalar_at, nullptr);
}

TEST(HelpWords, SayWhereToMeet) {
  const HelpInvitation invitation{HelpInvitation::kVersion, 2, 4};
  EXPECT_TRUE(read_invitation(weft::as_text(invitation)));
  EXPECT_FALSE(read_invitation(weft::as_text(HelpInvitation{HelpInvitation::kVersion, 1, 4})));
  EXPECT_FALSE(read_invitation(weft::as_text(HelpInvitation{HelpInvitation::kVersion, 2, 1000})));
  HelpStart start;
  start.ranks = start.member = 2;
  start.members = 3;
  EXPECT_TRUE(read_start(weft::as_text(start), invitation));
  start.at.address_count = 5;
  EXPECT_FALSE(read_start(weft::as_text(start), invitation));
  start.at.address_count = 0;
  start.at.magic = 0;
  EXPECT_FALSE(read_start(weft::as_text(start), invitation));
}

}  // namespace
}  // namespace weft::test
