// What lane kernels do with codecs, on the host: the bits are those of the host interpreter.
#include "src/exec/cuda/kernels/lane_codecs.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "src/exec/datatype.h"
#include "src/exec/host/combine_coded.h"
#include "src/exec/host/numbers.h"
#include "tests/support/sampling.h"

namespace weft::test {
namespace {

struct alignas(16) Unit {
  std::byte bytes[16];
};

constexpr const char* kCodecNames[] = {"int8", "int4", "fp8", "onebit", "topk", "widen"};
constexpr uint32_t kCodecThreads = 2 * cuda::kWarp;

// One step. Operands are random; both executors start from the same memory. Memory begins at any
// element, and one destination may be the memory of a source.
class RandomStep {
 public:
  // The first codec has this kind; all have this block.
  RandomStep(Random& random, const char* kind, uint32_t block) : random_(random) {
    const std::vector<const char*> kinds(std::begin(kCodecNames), std::end(kCodecNames));
    const std::vector<const char*> densities = {"0.01", "0.1", "0.6", "1"};
    for (int i = 0; i < 3; i++) {
      const std::string name = i == 0 ? kind : random.pick(kinds);
      codecs_.push_back(parse_codec_spec(
          name + ":block=" + std::to_string(block) +
          (name == "topk" ? std::string(":density=") + random.pick(densities) : "")));
    }
    type_ = random.pick(std::vector{ncclFloat32, ncclFloat32, ncclFloat16, ncclBfloat16});
    element_ = static_cast<uint32_t>(element_size(type_));
    elements_ = 1 + random.below(block + 300);
    if (random.below(3) == 0) elements_ = (elements_ + block - 1) / block * block;
    sources_ = 1 + static_cast<uint32_t>(random.below(random.below(3) == 0 ? 7 : 3));
    destinations_ = 1 + static_cast<uint32_t>(random.below(4));
    divide_ = sources_ > 1 && random.below(3) == 0;  // only sums complete
    for (uint32_t i = 0; i < sources_ + destinations_; i++) add_operand(i);
    for (auto& memory : host_) device_.push_back(memory);
    if (random.below(2) == 0) return;
    losses_from_ = random.below(4);
    host_losses_.resize(losses_from_ + elements_);
    for (float& lost : host_losses_)
      lost = static_cast<float>(static_cast<int32_t>(random.next())) * 0x1p-22f;
    device_losses_ = host_losses_;
  }

  void run_on_host() {
    std::vector<host::CodedOperand> operands;
    for (size_t i = 0; i < operands_.size(); i++)
      operands.push_back(
          {data(host_, i), spec(operands_[i]), operands_[i].kind == cuda::LaneOperand::kMessage});
    combine_coded(reduction(), operands.data(), sources_, 0, divide_, operands.data() + sources_,
                  destinations_, elements_,
                  host_losses_.empty() ? nullptr : host_losses_.data() + losses_from_);
  }

  // By the threads of an emulated block.
  void run_on_device() {
    cuda::LaneArguments a;
    std::copy(codecs_.begin(), codecs_.end(), a.codecs);
    a.codec_block = codecs_[0].block;
    a.element = element_;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (size_t i = 0; i < operands_.size(); i++)
      if (i < sources_)
        from.push_back(data(device_, i));
      else
        to.push_back(data(device_, i));
    cuda::LaneMovement m{};
    m.sources = from.data();
    m.source_count = sources_;
    m.elements = elements_;
    m.divide_by = divide_ ? 3 : 0;
    m.operands = operands_.data();
    m.losses = device_losses_.empty() ? nullptr : device_losses_.data() + losses_from_;
    m.destinations = to.data();
    m.destination_count = destinations_;
    if (type_ == ncclFloat32)
      move<cuda::Native<float>>(a, m);
    else if (type_ == ncclFloat16)
      move<host::Half>(a, m);
    else
      move<host::BFloat16>(a, m);
  }
  template <typename Type>
  static void move(const cuda::LaneArguments& a, const cuda::LaneMovement& m) {
    cuda::EmulatedBlock(kCodecThreads).run([&](uint32_t t) {
      cuda::combine_coded<Type>(a, m, {t, kCodecThreads});
    });
  }

  // The first operand that differs; empty: none. What lies around memory must not change.
  std::string difference() const {
    if (!host_losses_.empty() && std::memcmp(host_losses_.data(), device_losses_.data(),
                                             host_losses_.size() * sizeof(float)) != 0)
      return "losses of " + std::to_string(sources_) + " sources";
    for (size_t i = 0; i < operands_.size(); i++) {
      const bool message = operands_[i].kind == cuda::LaneOperand::kMessage;
      const size_t bytes = message ? bytes_of(i) : host_[buffers_[i]].size() * sizeof(Unit),
                   same = same_bytes(i, bytes);
      if (same < bytes)
        return std::string(i < sources_ ? "source " : "destination ") +
               std::to_string(i < sources_ ? i : i - sources_) +
               (message ? ", a message" : ", memory") + " with codec " +
               (spec(operands_[i]) == nullptr ? "none" : describe(*spec(operands_[i]))) + " of " +
               std::to_string(sources_) + " sources, the first with codec " +
               std::to_string(operands_[0].codec) + ": byte " + std::to_string(same) + " of " +
               std::to_string(elements_) + " elements of type " + std::to_string(type_) +
               (in_place_ ? ", in place" : "");
    }
    return "";
  }

 private:
  const CodecSpec* spec(const cuda::LaneOperand& operand) const {
    return operand.codec == 0 ? nullptr : &codecs_[operand.codec - 1u];
  }
  std::byte* data(std::vector<std::vector<Unit>>& memory, size_t i) {
    return memory[buffers_[i]].data()->bytes + begins_[buffers_[i]] * element_;
  }
  Reduction reduction() const {
    Reduction sum;
    sum.type = type_;
    if (divide_) sum.divide_by = 3;
    return sum;
  }
  // Of a message, without padding.
  size_t bytes_of(size_t i) const {
    const CodecSpec* with = spec(operands_[i]);
    if (with == nullptr) return element_ * elements_;
    const size_t scales = 4 * with->blocks(elements_);
    switch (with->kind) {
      case Codec::kInt4:
        return scales + (elements_ + 1) / 2;
      case Codec::kOneBit:
        return scales + (elements_ + 7) / 8;
      case Codec::kWiden:
        return 4 * elements_;
      case Codec::kTopK:
        return (element_ + 2) * with->kept_of(elements_);
      default:
        return scales + elements_;
    }
  }

  // How many bytes of an operand are equal. The bits of a sum of NaNs depend on the order in which
  // the compiler adds them, so plain NaNs are all equal.
  size_t same_bytes(size_t i, size_t bytes) const {
    const std::byte *a = host_[buffers_[i]].data()->bytes, *b = device_[buffers_[i]].data()->bytes;
    const CodecSpec* with = spec(operands_[i]);
    const bool coded = operands_[i].kind == cuda::LaneOperand::kMessage && with != nullptr;
    const uint32_t width = !coded ? element_ : with->kind == Codec::kWiden ? 4 : 1;
    for (size_t at = 0; at < bytes; at += width)
      if (std::memcmp(a + at, b + at, width) != 0 &&
          !(is_nan(a + at, width) && is_nan(b + at, width)))
        return at;
    return bytes;
  }
  bool is_nan(const std::byte* at, uint32_t width) const {
    uint32_t bits = 0;
    std::memcpy(&bits, at, width);
    const auto half = static_cast<uint16_t>(bits);
    return width == 4   ? std::isnan(codec::float_of(bits))
           : width == 1 ? false
                        : std::isnan(type_ == ncclFloat16 ? host::Half::load(half)
                                                          : host::BFloat16::load(half));
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
    if (!source && !message && !in_place_ && operands_[0].kind != cuda::LaneOperand::kMessage &&
        random_.below(3) == 0) {
      in_place_ = true;
      buffers_.push_back(buffers_[0]);
      return;
    }
    buffers_.push_back(host_.size());
    begins_.push_back(message || random_.below(2) == 0 ? 0 : random_.below(16 / element_));
    host_.emplace_back(elements_ / 2 + 64);
    if (source) fill(operand, data(host_, i));
  }

  void fill(const cuda::LaneOperand& operand, std::byte* at) {
    alignas(16) float values[3 * kMostBlock];
    for (uint64_t i = 0; i < elements_; i++) {
      float& value = values[i];
      value = static_cast<float>(static_cast<int32_t>(random_.next())) * 0x1p-20f;
      if (random_.below(300) == 0) value = 0;
      if (random_.below(20) == 0) value = 1000;  // equal magnitudes
      if (random_.below(2000) == 0) value = INFINITY;
      if (random_.below(4000) == 0) value = NAN;
    }
    // To the step's type, and then through the codec.
    std::vector<Unit> plain(elements_ / 4 + 1);
    const host::CodedOperand wide{reinterpret_cast<std::byte*>(values), &kWide, true},
        exact{plain.data()->bytes, nullptr, false};
    combine_coded(plain_sum(), &wide, 1, 0, false, &exact, 1, elements_, nullptr);
    if (operand.codec == 0 || operand.kind != cuda::LaneOperand::kMessage) {
      std::memcpy(at, plain.data(), element_ * elements_);
      return;
    }
    const host::CodedOperand to{at, spec(operand), true};
    combine_coded(plain_sum(), &exact, 1, 0, false, &to, 1, elements_, nullptr);
  }
  Reduction plain_sum() const {
    Reduction sum;
    sum.type = type_;
    return sum;
  }

  static constexpr CodecSpec kWide{Codec::kWiden, kUsualBlock, 0};
  Random& random_;
  std::vector<CodecSpec> codecs_;
  ncclDataType_t type_ = ncclFloat32;
  uint32_t element_ = 4;
  uint64_t elements_ = 0;
  uint32_t sources_ = 1, destinations_ = 1;
  bool divide_ = false, in_place_ = false;
  std::vector<cuda::LaneOperand> operands_;
  std::vector<size_t> buffers_;   // by operand
  std::vector<uint64_t> begins_;  // by buffer, in elements
  std::vector<std::vector<Unit>> host_, device_;
  uint64_t losses_from_ = 0;
  std::vector<float> host_losses_, device_losses_;  // empty: nothing is kept
};

TEST(LaneCodecs, HaveTheBitsOfTheHost) {
  Random random(test_seed());
  // Few of each: on a busy machine every exchange of a warp waits for the scheduler.
  const int samples = test_samples(4);
  for (uint32_t block = kLeastBlock; block <= kMostBlock; block *= 2)
    for (const char* kind : kCodecNames)
      for (int i = 0; i < samples; i++) {
        RandomStep step(random, kind, block);
        step.run_on_host();
        step.run_on_device();
        ASSERT_EQ(step.difference(), "") << kind << ' ' << block << ' ' << i;
      }
}

}  // namespace
}  // namespace weft::test
