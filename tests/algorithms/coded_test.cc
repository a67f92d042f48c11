// Coded schedules are proved for any map of hosts, give all ranks the same bits, and stay within
// the errors that we promise.
#include "algorithms/generators/coded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/base/error.h"
#include "src/exec/host/numbers.h"
#include "src/schedule/verify.h"
#include "tests/schedule/reference_run.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

using Hosts = std::vector<int>;
using Memory = std::vector<std::vector<std::byte>>;

const std::vector<Hosts>& coded_host_maps() {
  static const std::vector<Hosts> maps = {{0, 1},
                                          {0, 1, 2, 3},
                                          {0, 1, 2, 3, 4, 5, 6, 7},
                                          {0, 0, 1, 1},
                                          {0, 0, 0, 0, 1, 1, 1, 1},
                                          {0, 0, 1, 1, 2, 2, 3, 3},
                                          {0, 0, 0, 1},
                                          {0, 1, 0, 1, 2},
                                          {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9}};
  return maps;
}

constexpr CollectiveKind kCodedKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                          CollectiveKind::kReduceScatter};

template <typename Visit>
void for_all(const CodecSpec& spec, Visit visit) {
  for (const Hosts& hosts : coded_host_maps())
    for (const CollectiveKind kind : kCodedKinds) {
      const Collective c{kind, static_cast<int>(hosts.size()), 0};
      if (!why_not_coded(c, hosts, spec).empty()) continue;
      for (const bool in_place : {false, true})
        visit(verify(make_coded(c, hosts, spec), in_place), hosts);
    }
}

float gaussian(uint64_t seed) {
  Random random(seed);
  const double u = (static_cast<double>(random.below(1u << 24)) + 1) / (1u << 24),
               v = static_cast<double>(random.below(1u << 24)) / (1u << 24);
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v));
}

float element(const std::byte* at, ncclDataType_t type) {
  if (type == ncclFloat32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return type == ncclBfloat16 ? host::BFloat16::load(bits) : host::Half::load(bits);
}

void set_element(std::byte* at, ncclDataType_t type, float value) {
  if (type == ncclFloat32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  const uint16_t bits =
      type == ncclBfloat16 ? host::BFloat16::store(value) : host::Half::store(value);
  std::memcpy(at, &bits, sizeof bits);
}

// Runs a schedule on gaussian data and compares its outputs with exact sums.
class CodedRun {
 public:
  CodedRun(const VerifiedSchedule& verified, ncclDataType_t type, uint64_t count, bool average)
      : c_(verified.schedule().collective), type_(type), size_(type == ncclFloat32 ? 4 : 2) {
    for (int r = 0; r < c_.nranks; r++) {
      layouts_.push_back(layout_of(c_, r, count, verified.in_place()));
      memory_.emplace_back(layouts_.back().elements * size_);
      inputs_.emplace_back();
      for (uint64_t i = 0; i < layouts_.back().inputs; i++) {
        std::byte* at = memory_.back().data() + (layouts_.back().input_at + i) * size_;
        set_element(at, type, gaussian(mix(static_cast<uint64_t>(r), i)));
        inputs_.back().push_back(element(at, type));
      }
    }
    Reduction reduction;
    reduction.type = type;
    if (average) reduction.divide_by = static_cast<uint32_t>(c_.nranks);
    run_reference(verified, reduction, count, memory_);
    divisor_ = average ? c_.nranks : 1;
    count_ = count;
  }

  double exact(int r, uint64_t i) const {
    const auto rank = static_cast<size_t>(r);
    if (c_.kind == CollectiveKind::kAllGather) return inputs_[i / count_][i % count_];
    double sum = 0;
    for (const auto& input : inputs_)
      sum += input[c_.kind == CollectiveKind::kReduceScatter ? rank * count_ + i : i];
    return sum / divisor_;
  }
  float output(int r, uint64_t i) const {
    const auto rank = static_cast<size_t>(r);
    return element(memory_[rank].data() + (layouts_[rank].output_at + i) * size_, type_);
  }
  uint64_t outputs(int r) const { return layouts_[static_cast<size_t>(r)].outputs; }

  // Relative, over all outputs of all ranks. Own blocks of an all_gather are exact and left out.
  double error() const {
    double wrong = 0, all = 0;
    for (int r = 0; r < c_.nranks; r++)
      for (uint64_t i = 0; i < outputs(r); i++) {
        if (is_own(r, i)) continue;
        wrong += std::pow(output(r, i) - exact(r, i), 2);
        all += std::pow(exact(r, i), 2);
      }
    return std::sqrt(wrong / all);
  }

  // The first element that differs between ranks; empty: none.
  std::string disagreement() const {
    if (c_.kind == CollectiveKind::kReduceScatter) return "";
    for (uint64_t i = 0; i < outputs(0); i++) {
      int first = -1;
      for (int r = 0; r < c_.nranks; r++) {
        if (is_own(r, i)) {
          if (output(r, i) != exact(r, i)) return fmt::format("rank {} lost its block", r);
          continue;
        }
        if (first < 0) first = r;
        if (std::memcmp(at(first, i), at(r, i), size_) != 0)
          return fmt::format("element {} of ranks {} and {}", i, first, r);
      }
    }
    return "";
  }

 private:
  bool is_own(int r, uint64_t i) const {
    return c_.kind == CollectiveKind::kAllGather && i / count_ == static_cast<uint64_t>(r);
  }
  const std::byte* at(int r, uint64_t i) const {
    const auto rank = static_cast<size_t>(r);
    return memory_[rank].data() + (layouts_[rank].output_at + i) * size_;
  }

  const Collective c_;
  const ncclDataType_t type_;
  const size_t size_;
  std::vector<BufferLayout> layouts_;
  Memory memory_;
  std::vector<std::vector<float>> inputs_;
  uint64_t count_ = 0;
  double divisor_ = 1;
};

TEST(Coded, IsProvedInPlaceAndOutOfPlaceWithOneEncodingInEachPhase) {
  for (const char* text : {"int8", "int4:block=128", "fp8", "onebit", "topk:density=0.05"})
    for_all(parse_codec_spec(text), [&](const VerifiedSchedule& verified, const Hosts& hosts) {
      const bool two =
          std::count(hosts.begin(), hosts.end(), 0) + std::count(hosts.begin(), hosts.end(), 1) ==
          static_cast<std::ptrdiff_t>(hosts.size());
      const bool reduces = verified.schedule().collective.kind == CollectiveKind::kAllReduce;
      EXPECT_EQ(verified.passes(), reduces && !two ? 2 : 1) << verified.schedule().name;
    });
}

TEST(Coded, WideSumsLoseNothing) {
  int proved = 0;
  for_all(parse_codec_spec("widen"), [&](const VerifiedSchedule& verified, const Hosts&) {
    EXPECT_EQ(verified.passes(), 0);
    EXPECT_EQ(CodedRun(verified, ncclBfloat16, 999, false).disagreement(), "");
    proved++;
  });
  EXPECT_GT(proved, 20);
}

TEST(Coded, AllRanksGetTheSameBits) {
  Random random(test_seed());
  for (const char* text : {"int8", "int4:block=64", "fp8:block=32", "onebit", "topk:density=0.1"})
    for_all(parse_codec_spec(text), [&](const VerifiedSchedule& verified, const Hosts&) {
      const ncclDataType_t types[] = {ncclFloat32, ncclBfloat16, ncclFloat16};
      const CodedRun run(verified, types[random.below(3)], 1 + random.below(3000),
                         random.below(2) == 0);
      EXPECT_EQ(run.disagreement(), "") << verified.schedule().name;
    });
}

// Hosts of one machine are near each other: their messages are plain.
TEST(Coded, LinksToNearHostsArePlain) {
  const std::pair<Hosts, Hosts> maps[] = {{{0, 1, 2, 3}, {0, 0, 1, 1}},
                                          {{0, 0, 1, 1, 2, 2}, {0, 0, 0, 0, 1, 1}},
                                          {{0, 1, 2, 2, 3}, {7, 7, 7, 7, 5}}};
  for (const auto& [hosts, near] : maps)
    for (const CollectiveKind kind : kCodedKinds)
      for (const bool in_place : {false, true}) {
        const Collective c{kind, static_cast<int>(hosts.size()), 0};
        const auto verified =
            verify(make_coded(c, hosts, parse_codec_spec("int8:block=32"), near), in_place);
        EXPECT_EQ(CodedRun(verified, ncclFloat32, 1111, false).disagreement(), "")
            << name(kind) << in_place;
        int coded = 0, plain = 0;
        for (int r = 0; r < c.nranks; r++)
          for (const Lane& lane : verified.schedule().ranks[static_cast<size_t>(r)].lanes)
            for (const Step& step : lane.steps)
              for (const Operand& to : step.to) {
                if (to.kind != Operand::Kind::kPeer) continue;
                const auto me = static_cast<size_t>(r), peer = static_cast<size_t>(to.index);
                EXPECT_EQ(to.codec != 0, near[me] != near[peer]) << name(kind) << r;
                (to.codec != 0 ? coded : plain)++;
              }
        EXPECT_GT(coded, 0);
        EXPECT_GT(plain, 0);
      }
}

// Gaussian data, blocks of 256.
TEST(Coded, ErrorsAreAsPromised) {
  const std::pair<const char*, double> promises[] = {{"int8", 1e-2}, {"fp8", 4e-2}, {"int4", 0.18}};
  for (const auto& [text, most] : promises)
    for (const int n : {4, 8})
      for (const CollectiveKind kind : kCodedKinds) {
        Hosts hosts;
        for (int r = 0; r < n; r++) hosts.push_back(r);
        const Collective c{kind, n, 0};
        const auto verified = verify(make_coded(c, hosts, parse_codec_spec(text)), false);
        const uint64_t count = kind == CollectiveKind::kAllReduce ? 32768 : 4096;
        const double error = CodedRun(verified, ncclFloat32, count, false).error();
        EXPECT_LE(error, most) << text << " " << n << " ranks " << name(kind);
        EXPECT_GT(error, most / 20) << text << ": nothing was encoded";
        RecordProperty(fmt::format("{}_{}_{}", text, n, name(kind)), fmt::format("{:.5f}", error));
      }
}

TEST(Coded, SaysWhyNot) {
  const CodecSpec int8 = parse_codec_spec("int8");
  EXPECT_NE(why_not_coded({CollectiveKind::kAllReduce, 2, 0}, Hosts{0, 0}, int8), "");
  EXPECT_NE(why_not_coded({CollectiveKind::kBroadcast, 2, 0}, Hosts{0, 1}, int8), "");
  EXPECT_NE(
      why_not_coded({CollectiveKind::kAllGather, 2, 0}, Hosts{0, 1}, parse_codec_spec("widen")),
      "");
  EXPECT_EQ(why_not_coded({CollectiveKind::kAllGather, 2, 0}, Hosts{0, 1}, int8), "");
}

}  // namespace
}  // namespace weft::test
