// Checks SipHash-2-4 with its authors' vectors.
#include "src/base/siphash.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::test {
namespace {

// Key 00 01 .. 0f; entry n is the hash of the n bytes 00 01 .. n-1. (Appendix A of the paper and
// its reference code.)
constexpr uint64_t kVectors[] = {
    0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
    0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
    0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
    0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5,
};

TEST(SipHash, GivesTheVectorsOfItsAuthors) {
  Secret key;
  for (size_t i = 0; i < key.size(); i++) key[i] = static_cast<uint8_t>(i);
  std::string data;
  for (const uint64_t expected : kVectors) {
    EXPECT_EQ(siphash(key, data.data(), data.size()), expected) << data.size() << " bytes";
    data.push_back(static_cast<char>(data.size()));
  }
}

TEST(SipHash, ReadsDataAtAnyAlignment) {
  const Secret key = random_secret();
  const std::string text = "abcdefghijklmnopqrstuvwxyz";
  const uint64_t expected = siphash(key, text.data(), text.size());
  for (size_t shift = 1; shift < 8; shift++) {
    const std::string shifted = std::string(shift, '-') + text;
    EXPECT_EQ(siphash(key, shifted.data() + shift, text.size()), expected);
  }
}

}  // namespace
}  // namespace weft::test
