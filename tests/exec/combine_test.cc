// combine(): every type and operator, many sources and destinations, destinations that are sources.
#include "src/exec/host/combine.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/reference.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using Bytes = std::vector<std::byte>;

weft::Reduction plain(ncclDataType_t type, Reduction reduction) {
  weft::Reduction result;
  result.type = type;
  result.op = reduction == Reduction::kAvg ? ncclSum : built_in(reduction);
  return result;
}

// `count` sources of `elements` elements that can be reduced exactly, and the expected result.
struct Inputs {
  std::vector<Bytes> sources;
  Bytes expected;
};
Inputs inputs(const NumberType& type, Reduction reduction, size_t count, size_t elements) {
  Inputs result;
  result.sources.assign(count, Bytes(elements * type.bytes));
  result.expected.resize(elements * type.bytes);
  for (size_t i = 0; i < elements; i++) {
    const auto column = reduction_column(type, reduction, static_cast<int>(count), 5, i);
    for (size_t s = 0; s < count; s++) store(type, column[s], &result.sources[s][i * type.bytes]);
    store(type, reduce_column(type, reduction, column), &result.expected[i * type.bytes]);
  }
  return result;
}

void run(const weft::Reduction& reduction, const std::vector<std::byte*>& from,
         const std::vector<std::byte*>& to, size_t elements, uint64_t raw = 0,
         bool completes = false) {
  const std::vector<const std::byte*> sources(from.begin(), from.end());
  host::combine(reduction, sources.data(), static_cast<uint32_t>(sources.size()), raw, completes,
                to.data(), static_cast<uint32_t>(to.size()), elements);
}

std::vector<std::byte*> pointers(std::vector<Bytes>& buffers) {
  std::vector<std::byte*> all;
  for (Bytes& buffer : buffers) all.push_back(buffer.data());
  return all;
}

TEST(Combine, GivesTheReferenceForEveryTypeOperatorAndNumberOfSources) {
  for (const NumberType& type : all_types()) {
    for (const Reduction reduction :
         {Reduction::kSum, Reduction::kProd, Reduction::kMax, Reduction::kMin}) {
      for (const size_t count : {2, 3, 4, 5, 6, 7, 8, 13, 64}) {
        if (!reduction_is_exact(type, reduction, static_cast<int>(count))) continue;
        // One count crosses a block's end, the other is less than a block.
        const size_t elements = count == 3 || count == 6 ? 2500 : 33;
        Inputs in = inputs(type, reduction, count, elements);
        Bytes out(in.expected.size());
        run(plain(type.id, reduction), pointers(in.sources), {out.data()}, elements);
        EXPECT_EQ(out, in.expected) << type.name << ' ' << name_of(reduction) << " of " << count;
      }
    }
  }
}

TEST(Combine, WritesEveryDestinationEvenWhereItIsASource) {
  const NumberType& type = type_of(ncclFloat16);
  for (const size_t count : {2, 3, 5, 9}) {
    for (size_t alias = 0; alias < count; alias++) {
      for (const size_t place : {0, 1, 2}) {
        for (const size_t elements : {1, 2047, 2048, 2049}) {
          Inputs in = inputs(type, Reduction::kSum, count, elements);
          std::vector<Bytes> outputs(3, Bytes(in.expected.size()));
          std::vector<std::byte*> to = pointers(outputs);
          to[place] = in.sources[alias].data();
          run(plain(type.id, Reduction::kSum), pointers(in.sources), to, elements);
          for (size_t d = 0; d < to.size(); d++)
            ASSERT_EQ(d == place ? in.sources[alias] : outputs[d], in.expected)
                << count << " sources, destination " << place << " is source " << alias << ", "
                << elements;
        }
      }
    }
  }
}

TEST(Combine, CopiesASingleSourceBitByBit) {
  for (const size_t destinations : {1, 2, 5}) {
    for (const size_t bytes : {1, 63, 16384, 40000}) {
      Bytes source(bytes);
      for (size_t i = 0; i < bytes; i++) source[i] = static_cast<std::byte>(mix(i));
      const Bytes original = source;
      std::vector<Bytes> outputs(destinations, Bytes(bytes));
      std::vector<std::byte*> to = pointers(outputs);
      to.push_back(source.data());  // the source itself
      run(plain(ncclUint8, Reduction::kSum), {source.data()}, to, bytes);
      for (const Bytes& output : outputs) EXPECT_EQ(output, original);
      EXPECT_EQ(source, original);
    }
  }
}

TEST(Combine, MultipliesRawSourcesOnly) {
  const std::vector<float> a = {1, 2, 3}, b = {10, 20, 30}, c = {100, 200, 300};
  std::vector<float> out(3), expected = {111, 222, 333};
  weft::Reduction reduction = plain(ncclFloat32, Reduction::kSum);
  reduction.premultiply = true;
  const float scalar = 2;
  std::memcpy(&reduction.scalar_bits, &scalar, sizeof scalar);
  for (uint64_t raw = 0; raw < 8; raw++) {
    const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                  reinterpret_cast<const std::byte*>(b.data()),
                                  reinterpret_cast<const std::byte*>(c.data())};
    std::byte* destination = reinterpret_cast<std::byte*>(out.data());
    for (const uint32_t count : {1u, 2u, 3u}) {
      host::combine(reduction, sources, count, raw, false, &destination, 1, 3);
      const float factors[] = {raw & 1 ? 2.0f : 1.0f, raw & 2 ? 2.0f : 1.0f, raw & 4 ? 2.0f : 1.0f};
      for (size_t i = 0; i < 3; i++) {
        float sum = a[i] * factors[0];
        if (count > 1) sum += b[i] * factors[1];
        if (count > 2) sum += c[i] * factors[2];
        EXPECT_EQ(out[i], sum) << "raw " << raw << " of " << count << " sources";
      }
    }
  }
}

TEST(Combine, DividesCompletedAveragesTowardsZeroForIntegers) {
  std::vector<int32_t> a = {7, -7, 2147483647}, b = {2, -2, 0}, out(3);
  weft::Reduction reduction = plain(ncclInt32, Reduction::kAvg);
  reduction.divide_by = 2;
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                reinterpret_cast<const std::byte*>(b.data())};
  std::byte* destination = reinterpret_cast<std::byte*>(out.data());
  host::combine(reduction, sources, 2, 0, true, &destination, 1, 3);
  EXPECT_EQ(out, (std::vector<int32_t>{4, -4, 1073741823}));
  host::combine(reduction, sources, 2, 0, false, &destination, 1, 3);
  EXPECT_EQ(out, (std::vector<int32_t>{9, -9, 2147483647})) << "not complete yet";
}

TEST(Combine, RoundsManySmallFloatsOnce) {
  // 2048 + 1 + 1: half precision would lose each addition alone.
  const uint16_t big = 0x6800, one = 0x3c00, expected = 0x6801;
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&big),
                                reinterpret_cast<const std::byte*>(&one),
                                reinterpret_cast<const std::byte*>(&one)};
  uint16_t out = 0;
  std::byte* destination = reinterpret_cast<std::byte*>(&out);
  host::combine(plain(ncclFloat16, Reduction::kSum), sources, 3, 0, false, &destination, 1, 1);
  EXPECT_EQ(out, expected);
}

TEST(Combine, DoesNothingForNoElements) {
  std::byte untouched{42};
  std::byte* destination = &untouched;
  const std::byte* sources[] = {&untouched, &untouched};
  for (const uint32_t count : {1u, 2u})
    host::combine(plain(ncclFloat64, Reduction::kSum), sources, count, 0, true, &destination, 1, 0);
  EXPECT_EQ(untouched, std::byte{42});
}

}  // namespace
}  // namespace weft::test
