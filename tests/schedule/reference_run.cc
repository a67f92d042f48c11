// See reference_run.h.
#include "tests/schedule/reference_run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>
#include <tuple>

#include "src/exec/host/combine.h"
#include "src/exec/host/combine_coded.h"

namespace weft::test {
namespace {

using Bytes = std::vector<std::byte>;

// As executors cut blocks.
uint64_t chunk_of(const VerifiedSchedule& verified, uint64_t count, uint64_t element) {
  const auto chunks = static_cast<uint64_t>(verified.schedule().chunks);
  uint64_t unit = verified.uniform_only() ? 1 : std::max<uint64_t>(1, 64 / element);
  for (const CodecSpec& spec : verified.schedule().codecs)
    if (!verified.uniform_only()) unit = std::max<uint64_t>(unit, spec.block);
  return ((count + chunks - 1) / chunks + unit - 1) / unit * unit;
}

class Reference {
 public:
  Reference(const VerifiedSchedule& verified, const weft::Reduction& reduction, uint64_t count,
            std::vector<Bytes>& memory, std::vector<std::vector<float>>* losses)
      : verified_(verified),
        s_(verified.schedule()),
        reduction_(reduction),
        element_(element_size(reduction.type)),
        count_(count),
        chunk_(chunk_of(verified, count, element_)),
        memory_(memory),
        losses_(losses) {
    for (size_t r = 0; r < s_.ranks.size(); r++) {
      layouts_.push_back(layout_of(s_.collective, static_cast<int>(r), count, verified.in_place()));
      scratch_.emplace_back(static_cast<uint64_t>(s_.ranks[r].scratch_chunks) * chunk_ * element_);
      done_.emplace_back(s_.ranks[r].lanes.size(), 0);
    }
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < s_.ranks.size(); r++)
        for (size_t l = 0; l < s_.ranks[r].lanes.size(); l++)
          while (done_[r][l] < s_.ranks[r].lanes[l].steps.size() && can_run(r, l)) {
            perform(r, l);
            done_[r][l]++;
            moved = true;
          }
    }
    for (size_t r = 0; r < s_.ranks.size(); r++)
      for (size_t l = 0; l < s_.ranks[r].lanes.size(); l++)
        if (done_[r][l] < s_.ranks[r].lanes[l].steps.size())
          throw std::runtime_error("the reference run of " + s_.name + " is stuck");
  }

 private:
  const Step& step(size_t r, size_t l) const { return s_.ranks[r].lanes[l].steps[done_[r][l]]; }
  std::deque<Bytes>& fifo(int from, int to, int channel) { return fifos_[{from, to, channel}]; }

  bool can_run(size_t r, size_t l) {
    for (const Dependency& d : step(r, l).after)
      if (done_[r][static_cast<size_t>(d.lane)] <= static_cast<size_t>(d.step)) return false;
    for (const Operand& o : step(r, l).from)
      if (o.kind == Operand::Kind::kPeer && fifo(o.index, static_cast<int>(r), o.channel).empty())
        return false;
    return true;
  }

  // Elements of a chunk, by its position in its block.
  uint64_t length(int sub) const {
    const uint64_t begin = static_cast<uint64_t>(sub) * chunk_;
    return begin >= count_ ? 0 : std::min(chunk_, count_ - begin);
  }

  std::byte* local(size_t r, const Operand& o, int c) {
    if (o.buffer == Buffer::kScratch)
      return scratch_[r].data() + static_cast<uint64_t>(o.index + c) * chunk_ * element_;
    const BufferLayout& at = layouts_[r];
    const uint64_t base = o.buffer == Buffer::kInput ? at.input_at : at.output_at;
    return memory_[r].data() + (base + place(o, c)) * element_;
  }
  // In elements, from the begin of the input or output.
  uint64_t place(const Operand& o, int c) const {
    const auto index = static_cast<uint64_t>(o.index + c),
               chunks = static_cast<uint64_t>(s_.chunks);
    return index / chunks * count_ + index % chunks * chunk_;
  }
  // As Interpreter::losses().
  float* losses_of(size_t r, const Step& now, const StepFacts& facts, int c) const {
    if (losses_ == nullptr) return nullptr;
    float* all = (*losses_)[r].data();
    for (size_t i = 0; i < now.from.size(); i++)
      if (now.from[i].kind == Operand::Kind::kLocal && now.from[i].buffer == Buffer::kInput &&
          (facts.raw_sources >> i & 1u) != 0)
        return all + place(now.from[i], c);
    for (const Operand& to : now.to)
      if (to.kind == Operand::Kind::kLocal && to.buffer == Buffer::kOutput && facts.completes)
        return all + layouts_[r].inputs + place(to, c);
    return nullptr;
  }

  void perform(size_t r, size_t l) {
    const Step& now = step(r, l);
    const auto rank = static_cast<int>(r);
    const StepFacts& facts =
        verified_.facts(rank, static_cast<int>(l), static_cast<int>(done_[r][l]));
    const auto sub = [&](int c) { return (facts.piece + c) % s_.chunks; };
    std::vector<Bytes> received(now.from.size()), sent(now.to.size());
    for (size_t i = 0; i < now.to.size(); i++)
      for (int c = 0; c < now.count; c++)
        sent[i].resize(sent[i].size() + bytes_of(now.to[i], length(sub(c))));
    for (size_t i = 0; i < now.from.size(); i++) {
      if (now.from[i].kind != Operand::Kind::kPeer) continue;
      auto& queue = fifo(now.from[i].index, rank, now.from[i].channel);
      received[i] = std::move(queue.front());
      queue.pop_front();
    }
    std::vector<size_t> before(now.from.size() + now.to.size());
    for (int c = 0; c < now.count && !now.from.empty(); c++) {
      const uint64_t n = length(sub(c));
      std::vector<host::CodedOperand> operands;
      for (size_t i = 0; i < before.size(); i++) {
        const bool source = i < now.from.size();
        const Operand& o = source ? now.from[i] : now.to[i - now.from.size()];
        const bool peer = o.kind == Operand::Kind::kPeer;
        Bytes& message = source ? received[i] : sent[i - now.from.size()];
        operands.push_back({peer ? message.data() + before[i] : local(r, o, c), codec_of(o), peer});
        before[i] += bytes_of(o, n);
      }
      if (!now.to.empty() && n > 0)
        combine(operands, now.from.size(), facts, n, losses_of(r, now, facts, c));
    }
    for (size_t i = 0; i < now.to.size(); i++)
      if (now.to[i].kind == Operand::Kind::kPeer)
        fifo(rank, now.to[i].index, now.to[i].channel).push_back(std::move(sent[i]));
  }

  const CodecSpec* codec_of(const Operand& o) const {
    return o.codec == 0 ? nullptr : &s_.codecs[o.codec - 1u];
  }
  size_t bytes_of(const Operand& o, uint64_t elements) const {
    const CodecSpec* codec = codec_of(o);
    return codec == nullptr ? elements * element_
                            : encoded_bytes(*codec, elements, static_cast<uint32_t>(element_));
  }

  void combine(const std::vector<host::CodedOperand>& operands, size_t sources,
               const StepFacts& facts, uint64_t n, float* losses) const {
    const auto from = static_cast<uint32_t>(sources),
               to = static_cast<uint32_t>(operands.size() - sources);
    if (std::any_of(operands.begin(), operands.end(),
                    [](const host::CodedOperand& o) { return o.codec != nullptr; })) {
      host::combine_coded(reduction_, operands.data(), from, facts.raw_sources, facts.completes,
                          operands.data() + sources, to, n, losses);
      return;
    }
    std::vector<std::byte*> data;
    for (const host::CodedOperand& operand : operands) data.push_back(operand.data);
    host::combine(reduction_, data.data(), from, facts.raw_sources, facts.completes,
                  data.data() + sources, to, n);
  }

  const VerifiedSchedule& verified_;
  const Schedule& s_;
  const weft::Reduction reduction_;
  const uint64_t element_, count_, chunk_;
  std::vector<Bytes>& memory_;
  std::vector<std::vector<float>>* const losses_;
  std::vector<BufferLayout> layouts_;
  std::vector<Bytes> scratch_;
  std::vector<std::vector<size_t>> done_;  // steps, per rank and lane
  std::map<std::tuple<int, int, int>, std::deque<Bytes>> fifos_;
};

}  // namespace

BufferLayout layout_of(const Collective& collective, int rank, uint64_t count, bool in_place) {
  BufferLayout at;
  at.inputs = static_cast<uint64_t>(collective.input_blocks(rank)) * count;
  at.outputs = static_cast<uint64_t>(collective.output_blocks(rank)) * count;
  const bool shared = in_place && at.inputs > 0 && at.outputs > 0;
  const Collective::Overlap overlap = collective.overlap(rank, 1);
  at.input_at = shared ? static_cast<uint64_t>(overlap.input_at) * count : 0;
  at.output_at = shared ? static_cast<uint64_t>(overlap.output_at) * count : at.inputs;
  at.elements = shared ? std::max(at.inputs, at.outputs) : at.inputs + at.outputs;
  return at;
}

void run_reference(const VerifiedSchedule& verified, const weft::Reduction& reduction,
                   uint64_t count, std::vector<std::vector<std::byte>>& memory,
                   std::vector<std::vector<float>>* losses) {
  Reference(verified, reduction, count, memory, losses).run();
}

}  // namespace weft::test
