// Conversions of 16- and 8-bit floats, compared with the tests' own encoder: every pattern, every
// tie, the ends of the range.
#include "src/exec/host/numbers.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/number_types.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

template <typename Type, ncclDataType_t Id>
struct Tested {
  using type = Type;
  static const NumberType& reference() { return type_of(Id); }
};
using SmallFloats =
    testing::Types<Tested<host::Half, ncclFloat16>, Tested<host::PortableHalf, ncclFloat16>,
                   Tested<host::BFloat16, ncclBfloat16>, Tested<host::Float8E4M3, ncclFloat8e4m3>,
                   Tested<host::Float8E5M2, ncclFloat8e5m2>>;

template <typename T>
class SmallFloat : public testing::Test {
 protected:
  using Type = typename T::type;
  using Element = typename Type::Element;
  const NumberType& reference = T::reference();
  const uint64_t patterns = uint64_t{1} << (8 * sizeof(Element));

  static bool saturates() { return sizeof(Element) == 1; }
  uint64_t largest() const {
    uint64_t best = 0;
    for (uint64_t bits = 0; bits < patterns / 2; bits++)
      if (is_finite(reference, bits)) best = bits;
    return best;
  }
  // The pattern that `value` must become.
  uint64_t expected(double value) const {
    const uint64_t bits = encode(reference, value);
    if (!saturates() || std::isnan(value) || is_finite(reference, bits)) return bits;
    return largest() | (std::signbit(value) ? patterns / 2 : 0);
  }
  void expect_store(float value) const {
    const uint64_t got = Type::store(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(decode(reference, got))) << got;
    } else {
      ASSERT_EQ(got, expected(static_cast<double>(value))) << value;
    }
  }
};
TYPED_TEST_SUITE(SmallFloat, SmallFloats);

TYPED_TEST(SmallFloat, LoadsEveryPatternExactly) {
  for (uint64_t bits = 0; bits < this->patterns; bits++) {
    const float got = TestFixture::Type::load(static_cast<typename TestFixture::Element>(bits));
    const double value = decode(this->reference, bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(got), value) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(value)) << bits;
    }
  }
}

TYPED_TEST(SmallFloat, StoresWhatItLoaded) {
  for (uint64_t bits = 0; bits < this->patterns; bits++) {
    const float value = TestFixture::Type::load(static_cast<typename TestFixture::Element>(bits));
    if (std::isinf(value) && this->saturates()) continue;
    this->expect_store(value);
  }
}

TYPED_TEST(SmallFloat, RoundsTiesToEvenAndTheirNeighboursToTheNearest) {
  const uint64_t largest = this->largest();
  for (uint64_t bits = 0; bits < largest; bits++) {
    const double low = decode(this->reference, bits), high = decode(this->reference, bits + 1);
    const auto tie = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(tie), (low + high) / 2) << "a tie is a float";
    for (const float sign : {1.0f, -1.0f}) {
      const uint64_t negative = sign < 0 ? this->patterns / 2 : 0;
      ASSERT_EQ(TestFixture::Type::store(sign * tie), negative | (bits % 2 == 0 ? bits : bits + 1))
          << bits;
      ASSERT_EQ(TestFixture::Type::store(sign * std::nextafter(tie, 0.0f)), negative | bits)
          << bits;
      ASSERT_EQ(TestFixture::Type::store(sign * std::nextafter(tie, INFINITY)),
                negative | (bits + 1))
          << bits;
    }
  }
}

TYPED_TEST(SmallFloat, EndsAtInfinityOrStaysAtTheLargest) {
  const uint64_t largest = this->largest();
  const double last = decode(this->reference, largest),
               step = last - decode(this->reference, largest - 1);
  const auto tie = static_cast<float>(last + step / 2);
  const uint64_t beyond = this->saturates() ? largest : largest + 1;
  EXPECT_EQ(TestFixture::Type::store(std::nextafter(tie, 0.0f)), largest);
  EXPECT_EQ(TestFixture::Type::store(tie), beyond);
  EXPECT_EQ(TestFixture::Type::store(std::numeric_limits<float>::max()), beyond);
  EXPECT_EQ(TestFixture::Type::store(INFINITY), beyond);
  EXPECT_EQ(TestFixture::Type::store(-INFINITY), beyond | this->patterns / 2);
}

TYPED_TEST(SmallFloat, KeepsNanAndSignedZero) {
  for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu, 0xff812345u})
    this->expect_store(std::bit_cast<float>(bits));
  EXPECT_EQ(TestFixture::Type::store(0.0f), 0u);
  EXPECT_EQ(TestFixture::Type::store(-0.0f), this->patterns / 2);
  EXPECT_EQ(TestFixture::Type::store(std::numeric_limits<float>::denorm_min()), 0u);
  EXPECT_EQ(TestFixture::Type::store(-std::numeric_limits<float>::denorm_min()),
            this->patterns / 2);
}

TYPED_TEST(SmallFloat, AgreesWithTheReferenceOnRandomFloats) {
  Random random(test_seed());
  for (int i = 0; i < 200000; i++) {
    // Any float, or one near the type's range.
    auto bits = static_cast<uint32_t>(random.next());
    if (i % 2 == 0)
      bits = (bits & 0x807fffffu) | (static_cast<uint32_t>(100 + random.below(50)) << 23);
    this->expect_store(std::bit_cast<float>(bits));
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace weft::test
