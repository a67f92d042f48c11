// Derived secrets, proofs, session keys and tags. The expected values were computed with Python's
// hashlib.blake2b, so a peer of another build understands them.
#include "src/base/secret.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>

namespace weft::test {
namespace {

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Secret counting() {
  Secret key;
  for (size_t i = 0; i < key.size(); i++) key[i] = static_cast<uint8_t>(i);
  return key;
}

TEST(Secrets, GiveTheValuesOfAnotherImplementation) {
  EXPECT_EQ(hex(derive(counting(), "split", 3)), "bf0429584a7086eb7807874fa0a7ebca");
  EXPECT_EQ(hex(prove(counting(), "client", "said", 4)),
            "b797330572976895c54184a13c230cbe71b8a346772f10bd9628514874d2bdc7");
  EXPECT_EQ(hex(session_key(counting(), "to server", "said", 4)),
            "62fa77fb63942c64c43411b83ccf05c041a6466f2bef6e15e65357c8fa346c98");
  SessionKey key;
  for (size_t i = 0; i < key.size(); i++) key[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(hex(make_tag(key, "data", 4)), "ead611ef14f805c8c27e13a407dc5c79");
  EXPECT_EQ(hex(digest("data", 4)),
            "359ebb32b65238214090498dcd8c641cd22a80488d1300984a502093f90e4bc3");
  EXPECT_EQ(public_number(counting(), "communicator"), 0x5c3f4f7a027a5502u);
}

TEST(Secrets, DoNotMistakeALabelForData) {
  EXPECT_NE(prove(counting(), "client", "said", 4), prove(counting(), "clientsaid", "", 0));
  EXPECT_NE(prove(counting(), "client", "said", 4), prove(counting(), "server", "said", 4));
  EXPECT_NE(prove(counting(), "client", "said", 4), prove(Secret{}, "client", "said", 4));
  EXPECT_FALSE(
      same(prove(counting(), "client", "said", 4), prove(counting(), "client", "sais", 4)));
  EXPECT_TRUE(same(prove(counting(), "client", "said", 4), prove(counting(), "client", "said", 4)));
}

TEST(DerivedSecrets, DifferByKeyLabelAndNumber) {
  const Secret a = random_secret(), b = random_secret();
  std::set<Secret> all = {a, b};
  for (const Secret& key : {a, b})
    for (const char* label : {"split", "color", ""})
      for (const uint64_t number : {0ull, 1ull, 1ull << 40}) all.insert(derive(key, label, number));
  EXPECT_EQ(all.size(), 2u + 2 * 3 * 3);
  EXPECT_EQ(derive(a, "split", 3), derive(a, "split", 3));
}

TEST(RandomSecrets, AreNotAllTheSame) {
  std::set<Secret> all;
  for (int i = 0; i < 100; i++) all.insert(random_secret());
  EXPECT_EQ(all.size(), 100u);
}

}  // namespace
}  // namespace weft::test
