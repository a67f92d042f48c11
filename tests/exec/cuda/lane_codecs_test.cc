// What lane kernels do with codecs, on the host: the bits are those of the host interpreter.
#include "src/exec/cuda/kernels/lane_codecs.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "src/exec/host/combine_coded.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

struct alignas(16) Unit {
  std::byte bytes[16];
};

// One step on float data. Operands are random; both executors start from the same memory.
class RandomStep {
 public:
  explicit RandomStep(Random& random) : random_(random) {
    const std::vector<const char*> kinds = {"int8", "int4", "fp8", "onebit", "widen", "topk"};
    const std::vector<const char*> blocks = {"16", "64", "256"};
    const std::string block = random.pick(blocks);
    const std::vector<const char*> densities = {"0.01", "0.1", "0.6", "1"};
    for (int i = 0; i < 3; i++) {
      const std::string kind = random.pick(kinds);
      codecs_.push_back(parse_codec_spec(
          kind + ":block=" + block +
          (kind == "topk" ? std::string(":density=") + random.pick(densities) : "")));
    }
    elements_ = 1 + random.below(700);
    sources_ = 1 + static_cast<uint32_t>(random.below(4));
    destinations_ = 1 + static_cast<uint32_t>(random.below(4));
    divide_ = sources_ > 1 && random.below(3) == 0;  // only sums complete
    for (uint32_t i = 0; i < sources_ + destinations_; i++) add_operand(i);
    for (auto& memory : host_) device_.push_back(memory);
    if (random.below(2) == 0) return;
    host_losses_.resize(elements_);
    for (float& lost : host_losses_)
      lost = static_cast<float>(static_cast<int32_t>(random.next())) * 0x1p-22f;
    device_losses_ = host_losses_;
  }

  void run_on_host() {
    std::vector<host::CodedOperand> operands;
    for (size_t i = 0; i < host_.size(); i++)
      operands.push_back({host_[i].data()->bytes, spec(operands_[i]),
                          operands_[i].kind == cuda::LaneOperand::kMessage});
    combine_coded(reduction(), operands.data(), sources_, 0, divide_, operands.data() + sources_,
                  destinations_, elements_, host_losses_.empty() ? nullptr : host_losses_.data());
  }

  // By one emulated thread.
  void run_on_device() {
    cuda::LaneArguments a;
    std::copy(codecs_.begin(), codecs_.end(), a.codecs);
    a.codec_block = codecs_[0].block;
    a.element = 4;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (size_t i = 0; i < device_.size(); i++)
      if (i < sources_)
        from.push_back(device_[i].data()->bytes);
      else
        to.push_back(device_[i].data()->bytes);
    cuda::LaneMovement m{};
    m.sources = from.data();
    m.destinations = to.data();
    m.source_count = sources_;
    m.destination_count = destinations_;
    m.elements = elements_;
    m.divide_by = divide_ ? 3 : 0;
    m.operands = operands_.data();
    m.losses = device_losses_.empty() ? nullptr : device_losses_.data();
    for (const bool last : {false, true}) {  // as if destinations took two passes
      m.last_pass = last;
      move_blocks(a, m);
    }
  }
  void move_blocks(const cuda::LaneArguments& a, const cuda::LaneMovement& m) const {
    for (uint64_t begin = 0; begin < elements_; begin += a.codec_block)
      cuda::CodedBlock<cuda::Native<float>>(
          a, m, begin, static_cast<uint32_t>(std::min<uint64_t>(a.codec_block, elements_ - begin)))
          .move();
  }

  // The first destination that differs; empty: none.
  std::string difference() const {
    if (!host_losses_.empty() &&
        std::memcmp(host_losses_.data(), device_losses_.data(), elements_ * sizeof(float)) != 0)
      return "losses of " + std::to_string(sources_) + " sources";
    for (size_t i = sources_; i < host_.size(); i++)
      if (std::memcmp(host_[i].data(), device_[i].data(), bytes_of(i)) != 0)
        return "destination " + std::to_string(i - sources_) +
               (operands_[i].kind == cuda::LaneOperand::kMessage ? ", a message" : ", memory") +
               " with codec " +
               (spec(operands_[i]) == nullptr ? "none" : describe(*spec(operands_[i]))) + " of " +
               std::to_string(sources_) + " sources, the first with codec " +
               std::to_string(operands_[0].codec) + ": byte " + std::to_string(first_byte(i)) +
               " of " + std::to_string(elements_) + " elements";
    return "";
  }

 private:
  const CodecSpec* spec(const cuda::LaneOperand& operand) const {
    return operand.codec == 0 ? nullptr : &codecs_[operand.codec - 1u];
  }
  Reduction reduction() const {
    Reduction sum;
    if (divide_) sum.divide_by = 3;
    return sum;
  }
  // Without padding.
  size_t bytes_of(size_t i) const {
    const CodecSpec* with = spec(operands_[i]);
    if (with == nullptr || operands_[i].kind != cuda::LaneOperand::kMessage) return 4 * elements_;
    const size_t scales = 4 * with->blocks(elements_);
    switch (with->kind) {
      case Codec::kInt4:
        return scales + (elements_ + 1) / 2;
      case Codec::kOneBit:
        return scales + (elements_ + 7) / 8;
      case Codec::kWiden:
        return 4 * elements_;
      case Codec::kTopK:
        return 6 * with->kept_of(elements_);
      default:
        return scales + elements_;
    }
  }

  size_t first_byte(size_t i) const {
    size_t at = 0;
    while (std::memcmp(host_[i].data()->bytes + at, device_[i].data()->bytes + at, 1) == 0) at++;
    return at;
  }

  void add_operand(uint32_t i) {
    cuda::LaneOperand operand;
    const bool message = random_.below(2) == 0, source = i < sources_;
    operand.kind = message ? cuda::LaneOperand::kMessage : cuda::LaneOperand::kScratch;
    operand.codec = static_cast<uint8_t>(random_.below(4)) & 0x7fu;
    const CodecSpec* with = spec(operand);
    if (!message && with != nullptr && !with->lossy()) operand.codec = 0;
    // Memory is seen through a codec only if it is the only source, and others have the same.
    if (!message && source && sources_ > 1) operand.codec = 0;
    const bool seen = !operands_.empty() && sources_ == 1 && operands_[0].codec != 0 &&
                      operands_[0].kind != cuda::LaneOperand::kMessage;
    if (seen && operand.codec != 0) operand.codec = operands_[0].codec;
    if (operand.codec != 0 && !message && !spec(operand)->lossy()) operand.codec = 0;
    operands_.push_back(operand);
    host_.emplace_back(elements_ / 2 + 64);
    if (source) fill(operand, host_.back().data()->bytes);
  }

  void fill(const cuda::LaneOperand& operand, std::byte* at) {
    std::vector<float> values(elements_ + 8);
    for (float& value : values) {
      value = static_cast<float>(static_cast<int32_t>(random_.next())) * 0x1p-20f;
      if (random_.below(300) == 0) value = 0;
      if (random_.below(20) == 0) value = 1000;  // equal magnitudes
      if (random_.below(2000) == 0) value = INFINITY;
    }
    if (operand.codec == 0 || operand.kind != cuda::LaneOperand::kMessage) {
      std::memcpy(at, values.data(), 4 * elements_);
      return;
    }
    const host::CodedOperand from{reinterpret_cast<std::byte*>(values.data()), nullptr, false},
        to{at, spec(operand), true};
    combine_coded({}, &from, 1, 0, false, &to, 1, elements_, nullptr);
  }

  Random& random_;
  std::vector<CodecSpec> codecs_;
  uint64_t elements_ = 0;
  uint32_t sources_ = 1, destinations_ = 1;
  bool divide_ = false;
  std::vector<cuda::LaneOperand> operands_;
  std::vector<std::vector<Unit>> host_, device_;
  std::vector<float> host_losses_, device_losses_;  // empty: nothing is kept
};

TEST(LaneCodecs, HaveTheBitsOfTheHost) {
  Random random(test_seed());
  for (int i = 0; i < test_samples(2000); i++) {
    RandomStep step(random);
    step.run_on_host();
    step.run_on_device();
    ASSERT_EQ(step.difference(), "") << i;
  }
}

}  // namespace
}  // namespace weft::test
