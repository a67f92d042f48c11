// Checksums and sealed records: what goes in comes out, and every change is found.
#include "src/base/seal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "src/base/checksum.h"
#include "src/base/error.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

std::vector<std::byte> some_bytes(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; i++) bytes[i] = static_cast<std::byte>(mix(size, i));
  return bytes;
}

TEST(Checksum, OfTheInstructionAndOfTheTableAreEqual) {
  for (size_t size = 0; size < 200; size++) {
    const auto bytes = some_bytes(size);
    EXPECT_EQ(checksum(bytes.data(), size, size), checksum_by_table(bytes.data(), size, size));
  }
}

// CRC-32C of "123456789" is 0xe3069283 in every catalogue. This is the same without the final
// complement, with zeros to fill the word and then the number and the size.
TEST(Checksum, IsTheCrcThatOthersCompute) {
  const auto by_bits = [](const std::vector<uint8_t>& bytes) {
    uint32_t crc = ~0u;
    for (const uint8_t byte : bytes) {
      crc ^= byte;
      for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    }
    return crc;
  };
  EXPECT_EQ(~by_bits({'1', '2', '3', '4', '5', '6', '7', '8', '9'}), 0xe3069283u);
  const std::vector<uint8_t> whole = {'1', '2', '3', '4', '5', '6', '7', '8', '9', 0, 0,
                                      0,   0,   0,   0,   0,   7,   0,   0,   0,   0, 0,
                                      0,   0,   9,   0,   0,   0,   0,   0,   0,   0};
  EXPECT_EQ(checksum("123456789", 9, 7)[3], by_bits(whole));
}

TEST(Checksum, ChangesWithEveryBitTheNumberAndTheSize) {
  for (const size_t size : {1u, 23u, 24u, 100u}) {
    auto bytes = some_bytes(size);
    const Checksum before = checksum(bytes.data(), size, 5);
    EXPECT_NE(before, checksum(bytes.data(), size, 6));
    EXPECT_NE(before, checksum(bytes.data(), size - 1, 5));
    for (size_t bit = 0; bit < 8 * size; bit++) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT_NE(before, checksum(bytes.data(), size, 5)) << bit;
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

class Seals : public testing::TestWithParam<Seal::Kind> {
 protected:
  void SetUp() override {
    const bool has_aes = common_seal(seals_for(Wire::kEncrypt), ~0u) == Seal::Kind::kAes256Gcm;
    if (GetParam() == Seal::Kind::kAes256Gcm && !has_aes)
      GTEST_SKIP() << "libsodium has no AES for this CPU";
  }
  bool encrypts() const { return GetParam() != Seal::Kind::kChecksum; }
  std::vector<std::byte> sealed(Seal& seal, const std::vector<std::byte>& data) {
    std::vector<std::byte> out(data.size() + Seal::kTagBytes);
    seal.seal(out.data(), data.data(), data.size());
    return out;
  }
  const SessionKey key_ = {1, 2, 3};
};

TEST_P(Seals, OpenWhatWasSealedAlsoInPlace) {
  Seal out(GetParam(), key_), in(GetParam(), key_);
  for (const size_t size : {1u, 15u, 16u, 1000u, 65536u}) {
    const auto data = some_bytes(size);
    auto record = sealed(out, data);
    std::vector<std::byte> got(size);
    ASSERT_TRUE(in.open(got.data(), record.data(), size));
    EXPECT_EQ(got, data);
    std::memcpy(record.data(), data.data(), size);
    out.seal(record.data(), record.data(), size);
    ASSERT_TRUE(in.open(record.data(), record.data(), size));
    EXPECT_EQ(std::memcmp(record.data(), data.data(), size), 0);
  }
}

TEST_P(Seals, FindEveryFlippedBit) {
  const auto data = some_bytes(50);
  Seal out(GetParam(), key_);
  auto record = sealed(out, data);
  for (size_t bit = 0; bit < 8 * record.size(); bit++) {
    record[bit / 8] ^= std::byte{1} << (bit % 8);
    Seal in(GetParam(), key_);
    std::vector<std::byte> got(data.size());
    EXPECT_FALSE(in.open(got.data(), record.data(), data.size())) << "bit " << bit;
    record[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST_P(Seals, FindALostAndARepeatedRecord) {
  const auto data = some_bytes(50);
  Seal out(GetParam(), key_);
  const auto first = sealed(out, data), second = sealed(out, data);
  EXPECT_NE(first, second);
  std::vector<std::byte> got(data.size());
  Seal lost(GetParam(), key_), repeated(GetParam(), key_);
  EXPECT_FALSE(lost.open(got.data(), second.data(), data.size()));
  EXPECT_TRUE(repeated.open(got.data(), first.data(), data.size()));
  EXPECT_FALSE(repeated.open(got.data(), first.data(), data.size()));
}

TEST_P(Seals, OfAnotherKeyDoNotOpenWhatIsEncrypted) {
  const auto data = some_bytes(50);
  Seal out(GetParam(), key_), other(GetParam(), {1, 2, 4});
  const auto record = sealed(out, data);
  std::vector<std::byte> got(data.size());
  EXPECT_EQ(other.open(got.data(), record.data(), data.size()), !encrypts());
  // 8 bytes in a row that are equal would be chance once in 10^18 times.
  bool shows = false;
  for (size_t i = 0; i + 8 <= data.size(); i++)
    shows = shows || std::memcmp(&data[i], &record[i], 8) == 0;
  EXPECT_EQ(shows, !encrypts());
}

TEST_P(Seals, GoOnWithTheNextKey) {
  Seal out(GetParam(), key_), in(GetParam(), key_);
  std::byte record[1 + Seal::kTagBytes];
  std::byte first[sizeof record];
  const std::byte data{42};
  for (uint64_t i = 0; i < Seal::kRecordsPerKey + 3; i++) {
    out.seal(record, &data, 1);
    if (i == 0) std::memcpy(first, record, sizeof record);
    std::byte got{0};
    ASSERT_TRUE(in.open(&got, record, 1)) << i;
    ASSERT_EQ(got, data);
  }
  EXPECT_NE(std::memcmp(first, record, sizeof record), 0);
}

std::string name_of_kind(const testing::TestParamInfo<Seal::Kind>& tested) {
  constexpr const char* kNames[] = {"none", "checksum", "chacha", "aes"};
  return kNames[static_cast<int>(tested.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds, Seals,
                         testing::Values(Seal::Kind::kChecksum, Seal::Kind::kChaCha20Poly1305,
                                         Seal::Kind::kAes256Gcm),
                         name_of_kind);

TEST(CommonSeal, IsTheBestOfBothOrNone) {
  constexpr uint32_t kChaCha = 4, kBoth = 12;
  EXPECT_EQ(common_seal(kBoth, kBoth), Seal::Kind::kAes256Gcm);
  EXPECT_EQ(common_seal(kBoth, kChaCha), Seal::Kind::kChaCha20Poly1305);
  EXPECT_EQ(common_seal(kBoth, seals_for(Wire::kCheck)), std::nullopt);
  EXPECT_EQ(common_seal(seals_for(Wire::kPlain), seals_for(Wire::kPlain)), Seal::Kind::kNone);
  for (const Wire wire : {Wire::kPlain, Wire::kCheck, Wire::kEncrypt}) {
    EXPECT_STREQ(wire_name(seals_for(wire)), name_of(wire));
    EXPECT_EQ(wire_of(name_of(wire)), wire);
  }
  EXPECT_THROW(wire_of("open"), Error);
}

}  // namespace
}  // namespace weft::test
