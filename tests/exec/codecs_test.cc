// Codecs on the host: what arrives is within the bound that is given, for any length and any data,
// and what must not be changed is not.
#include "src/exec/host/codecs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/base/error.h"
#include "src/exec/host/combine_coded.h"
#include "src/exec/host/numbers.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using host::CodedOperand;
using Floats = std::vector<float>;

std::vector<CodecSpec> lossy_specs() {
  std::vector<CodecSpec> specs;
  for (const char* text : {"int8", "int8:block=64", "int4", "int4:block=4096", "fp8", "onebit",
                           "onebit:block=16", "topk:density=0.1", "topk:density=1:block=32"})
    specs.push_back(parse_codec_spec(text));
  return specs;
}

// Roughly gaussian, of very different magnitudes in different places.
Floats some_data(size_t n, uint64_t seed) {
  Random random(seed);
  Floats values(n);
  for (size_t i = 0; i < n; i++) {
    float value = 0;
    for (int k = 0; k < 6; k++) value += static_cast<float>(random.below(2001)) / 1000.0f - 1.0f;
    values[i] = std::ldexp(value, static_cast<int>(i / 100 % 7) - 3);
  }
  return values;
}

struct Coded {
  explicit Coded(const CodecSpec& with, const Floats& values, ncclDataType_t type = ncclFloat32)
      : spec(with),
        bytes(encoded_bytes(with, values.size(), type == ncclFloat32 ? 4 : 2) / 16 + 1),
        coded{this->spec, reinterpret_cast<std::byte*>(bytes.data()), values.size(), type} {
    for (size_t at = 0; at < values.size(); at += 4096)
      encode(coded, at, static_cast<uint32_t>(std::min<size_t>(4096, values.size() - at)),
             values.data() + at);
  }
  Floats decoded() const {
    Floats values(coded.elements);
    for (size_t at = 0; at < values.size(); at += 4096)
      decode(coded, at, static_cast<uint32_t>(std::min<size_t>(4096, values.size() - at)),
             values.data() + at);
    return values;
  }
  struct alignas(16) Unit {
    std::byte bytes[16];
  };
  const CodecSpec spec;
  std::vector<Unit> bytes;
  host::CodedBytes coded;
};

float largest_of_block(const Floats& values, size_t i, size_t block) {
  float largest = 0;
  const size_t begin = i / block * block;
  for (size_t k = begin; k < std::min(begin + block, values.size()); k++)
    largest = std::max(largest, std::fabs(values[k]));
  return largest;
}

TEST(Codecs, EveryElementIsWithinTheBoundOfItsBlock) {
  for (const CodecSpec& spec : lossy_specs())
    for (const size_t n : {1u, 2u, 15u, 17u, 255u, 256u, 257u, 1000u, 5000u}) {
      const Floats values = some_data(n, n);
      const Floats decoded = Coded(spec, values).decoded();
      for (size_t i = 0; i < n; i++)
        ASSERT_LE(std::fabs(decoded[i] - values[i]),
                  codec_bound(spec, 23) * largest_of_block(values, i, spec.block))
            << describe(spec) << " " << i << " of " << n;
    }
}

TEST(Codecs, NanAndInfinityPoisonTheirBlockAndNoOther) {
  for (const CodecSpec& spec : lossy_specs())
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      const size_t n = 3 * spec.block + 7, at = spec.block + 3;
      Floats values = some_data(n, 5);
      values[at] = bad;
      const Floats decoded = Coded(spec, values).decoded();
      for (size_t i = 0; i < n; i++)
        ASSERT_EQ(std::isnan(decoded[i]), i / spec.block == at / spec.block)
            << describe(spec) << " " << i;
    }
}

TEST(Codecs, ZerosAndTinyBlocksDecodeToZeros) {
  for (const CodecSpec& spec : lossy_specs())
    for (const float tiny : {0.0f, -0.0f, 1e-38f, 1e-45f}) {
      if (spec.kind == Codec::kTopK) continue;  // it keeps values as they are
      for (const float value : Coded(spec, Floats(300, tiny)).decoded())
        ASSERT_EQ(std::fabs(value), 0.0f) << describe(spec) << " " << tiny;
    }
}

TEST(Codecs, TheLargestMagnitudesOfFloatsAreKept) {
  for (const CodecSpec& spec : lossy_specs()) {
    if (spec.kind == Codec::kOneBit) continue;
    Floats values(spec.block, 0.0f);
    values[3] = -3.4e38f;
    const float decoded = Coded(spec, values).decoded()[3];
    ASSERT_NEAR(decoded / -3.4e38f, 1.0f, 1e-6f) << describe(spec);
  }
}

TEST(Codecs, Fp8CodesAreTheNearestOnes) {
  for (int code = 0; code < 127; code++) {
    const float value = host::Float8E4M3::decode(static_cast<uint8_t>(code));
    const float next =
        code < 126 ? host::Float8E4M3::decode(static_cast<uint8_t>(code + 1)) : value;
    for (const float x : {value, value + (next - value) * 0.49f, value + (next - value) * 0.51f}) {
      // 448 makes the scale 1.
      const Floats decoded = Coded(parse_codec_spec("fp8"), {448.0f, x, -x}).decoded();
      const float expected = host::Float8E4M3::load(host::Float8E4M3::store(x));
      ASSERT_EQ(decoded[1], expected) << x;
      ASSERT_EQ(decoded[2], -expected) << x;
    }
  }
}

TEST(Codecs, TopKKeepsTheLargestAndOfEqualOnesTheFirst) {
  const CodecSpec spec = parse_codec_spec("topk:block=16:density=0.25");
  Floats values(16, 1.0f);
  values[9] = -5;
  values[12] = 3;
  const Floats decoded = Coded(spec, values).decoded();
  Floats expected(16, 0.0f);
  expected[0] = expected[1] = 1;
  expected[9] = -5;
  expected[12] = 3;
  EXPECT_EQ(decoded, expected);
}

TEST(Codecs, SizesAreTheFormatsSizes) {
  EXPECT_EQ(encoded_bytes(parse_codec_spec("int8"), 1024, 4), 1024u + 16);
  EXPECT_EQ(encoded_bytes(parse_codec_spec("int4"), 1024, 2), 512u + 16);
  EXPECT_EQ(encoded_bytes(parse_codec_spec("onebit"), 1024, 4), 128u + 16);
  EXPECT_EQ(encoded_bytes(parse_codec_spec("topk:density=0.0625"), 1024, 4), 64u * 6);
  EXPECT_EQ(encoded_bytes(parse_codec_spec("widen"), 1024, 2), 4096u);
  EXPECT_EQ(encoded_bytes(parse_codec_spec("int8"), 0, 4), 0u);
}

TEST(Codecs, BadSpecsAreRefused) {
  for (const char* text : {"", "int9", "int8:block=0", "int8:block=100", "int8:block=8192",
                           "int8:density=0.5", "topk:density=0", "topk:density=1.5",
                           "topk:density=-1", "topk:density=nan", "int8:blok=16", "int8:block=x"})
    EXPECT_THROW(parse_codec_spec(text), Error) << text;
  EXPECT_EQ(describe(parse_codec_spec("topk:density=0.5:block=64")), "topk:block=64:density=0.5");
}

TEST(CombineCoded, AStepThatPassesOnDoesNotEncodeAgain) {
  for (const CodecSpec& spec : lossy_specs()) {
    const Floats values = some_data(777, 3);
    Coded in(spec, values), out(spec, Floats(777, 0.0f));
    Floats memory(777);
    const CodedOperand from{in.coded.data, &in.spec, true};
    const CodedOperand to[] = {{reinterpret_cast<std::byte*>(memory.data()), nullptr, false},
                               {out.coded.data, &in.spec, true}};
    combine_coded({}, &from, 1, 0, false, to, 2, 777, nullptr);
    EXPECT_EQ(std::memcmp(in.coded.data, out.coded.data, encoded_bytes(spec, 777, 4)), 0);
    EXPECT_EQ(memory, in.decoded());
  }
}

TEST(CombineCoded, MemoryWithACodecIsWhatReceiversSee) {
  for (const CodecSpec& spec : lossy_specs()) {
    Floats a = some_data(3000, 1), sum = some_data(3000, 2), kept(3000);
    for (size_t i = 0; i < 3000; i++) sum[i] = a[i] + sum[i];
    const Floats b = some_data(3000, 2);
    Coded sent(spec, Floats(3000, 0.0f));
    const CodedOperand from[] = {
        {reinterpret_cast<std::byte*>(a.data()), nullptr, false},
        {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(b.data())), nullptr, false}};
    const CodedOperand to[] = {{reinterpret_cast<std::byte*>(a.data()), &sent.spec, false},
                               {sent.coded.data, &sent.spec, true},
                               {reinterpret_cast<std::byte*>(kept.data()), nullptr, false}};
    combine_coded({}, from, 2, 0, false, to, 3, 3000, nullptr);
    EXPECT_EQ(a, sent.decoded()) << describe(spec);  // in place
    EXPECT_EQ(kept, sum);
    EXPECT_EQ(a, Coded(spec, sum).decoded());
  }
}

TEST(CombineCoded, LossesComeWithTheNextCall) {
  for (const CodecSpec& spec : lossy_specs()) {
    const size_t n = 600;
    const Floats values = some_data(n, 11);
    Floats losses(n, 0.0f), total(n, 0.0f);
    Coded sent(spec, Floats(n, 0.0f));
    const CodedOperand from{
        const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values.data())), nullptr, false};
    const CodedOperand to{sent.coded.data, &sent.spec, true};
    const int calls = 40;
    for (int k = 0; k < calls; k++) {
      combine_coded({}, &from, 1, 1, false, &to, 1, n, losses.data());
      const Floats decoded = sent.decoded();
      for (size_t i = 0; i < n; i++) total[i] += decoded[i];
    }
    // What was sent and what is still owed make the sum.
    for (size_t i = 0; i < n; i++)
      ASSERT_NEAR(total[i] + losses[i], static_cast<float>(calls) * values[i],
                  1e-3f * largest_of_block(values, i, spec.block) * calls)
          << describe(spec) << " " << i;
  }
}

TEST(CombineCoded, ANanLeavesNoLosses) {
  const CodecSpec spec = parse_codec_spec("int8");
  Floats values(300, 1.0f), losses(300, 0.25f);
  values[5] = NAN;
  Coded sent(spec, Floats(300, 0.0f));
  const CodedOperand from{reinterpret_cast<std::byte*>(values.data()), nullptr, false};
  const CodedOperand to{sent.coded.data, &sent.spec, true};
  combine_coded({}, &from, 1, 1, false, &to, 1, 300, losses.data());
  for (const float loss : losses) ASSERT_TRUE(std::isfinite(loss));
  EXPECT_TRUE(std::isnan(sent.decoded()[0]));
}

TEST(CombineCoded, WideSumsAreRoundedOnlyAtTheEnd) {
  // 256 + 1 + 1 in bfloat16: each 1 is lost if the sum is rounded in between.
  const CodecSpec spec = parse_codec_spec("widen");
  const uint16_t big = host::BFloat16::store(256.0f), one = host::BFloat16::store(1.0f);
  uint16_t result = 0;
  alignas(16) std::byte message[16];
  const auto memory = [](const uint16_t& at) {
    return CodedOperand{const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&at)), nullptr,
                        false};
  };
  const CodedOperand first[] = {memory(big), memory(one)}, wire{message, &spec, true};
  Reduction sum;
  sum.type = ncclBfloat16;
  combine_coded(sum, first, 2, 0, false, &wire, 1, 1, nullptr);
  const CodedOperand second[] = {wire, memory(one)}, out = memory(result);
  combine_coded(sum, second, 2, 0, true, &out, 1, 1, nullptr);
  EXPECT_EQ(host::BFloat16::load(result), 258.0f);
}

}  // namespace
}  // namespace weft::test
