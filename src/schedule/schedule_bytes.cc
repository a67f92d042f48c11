// See schedule_bytes.h. Numbers are groups of seven bits, the lowest first. Signed ones have the
// sign in the lowest bit.
#include "src/schedule/schedule_bytes.h"

#include <bit>

#include "src/base/error.h"

namespace weft {
namespace {

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  void number(int32_t value) {
    const auto bits = static_cast<uint32_t>(value);
    number(uint64_t{bits << 1 ^ (value < 0 ? ~0u : 0u)});
  }
  void text(const std::string& value) {
    number(uint64_t{value.size()});
    out_ += value;
  }
  void operand(const Operand& o) {
    number(uint64_t{static_cast<unsigned>(o.kind) | static_cast<unsigned>(o.buffer) << 2 |
                    (o.channel != 0 ? 16u : 0u) | (o.owner != -1 ? 32u : 0u) |
                    (o.codec != 0 ? 64u : 0u)});
    number(o.index);
    if (o.channel != 0) number(int32_t{o.channel});
    if (o.owner != -1) number(o.owner);
    if (o.codec != 0) number(uint64_t{o.codec});
  }
  void step(const Step& step) {
    number(step.count);
    number(uint64_t{step.from.size()});
    for (const Operand& o : step.from) operand(o);
    number(uint64_t{step.to.size()});
    for (const Operand& o : step.to) operand(o);
    number(uint64_t{step.after.size()});
    for (const Dependency& d : step.after) {
      number(d.lane);
      number(d.step);
    }
  }

 private:
  std::string& out_;
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& source) : rest_(bytes), source_(source) {}
  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) bad("it is cut off");
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    bad("a number is too long");
  }
  int32_t integer() {
    const uint64_t value = number();
    if (value > 0xffffffffu) bad("a number is too large");
    const auto bits = static_cast<uint32_t>(value);
    return static_cast<int32_t>(bits >> 1 ^ ((bits & 1) != 0 ? ~0u : 0u));
  }
  // Every element has a byte at least.
  size_t count() {
    const uint64_t value = number();
    if (value > rest_.size()) bad("it is cut off");
    return value;
  }
  std::string text() {
    const size_t size = count();
    const std::string value(rest_.substr(0, size));
    for (const char c : value)
      if (c < ' ' || c > '~') bad("a name is no plain text");
    rest_.remove_prefix(size);
    return value;
  }
  Operand operand() {
    const uint64_t head = number();
    const auto kind = head & 3, buffer = head >> 2 & 3;
    if (head >= 128 || kind > 2 || buffer > 2) bad("an operand is of no known kind");
    Operand o;
    o.kind = static_cast<Operand::Kind>(kind);
    o.buffer = static_cast<Buffer>(buffer);
    o.index = integer();
    if ((head & 16) != 0) o.channel = channel();
    if ((head & 32) != 0) o.owner = integer();
    if ((head & 64) != 0) o.codec = byte();
    return o;
  }
  uint8_t byte() {
    const uint64_t value = number();
    if (value > 0xff) bad("a codec is too large");
    return static_cast<uint8_t>(value);
  }
  CodecSpec codec() {
    const uint8_t kind = byte();
    const uint64_t block = number();
    const CodecSpec spec{static_cast<Codec>(kind), static_cast<uint32_t>(block),
                         std::bit_cast<double>(number())};
    if (kind >= kCodecs || block > kMostBlock || !fault_of(spec).empty()) bad("it has a bad codec");
    return spec;
  }
  int16_t channel() {
    const int32_t value = integer();
    if (value != static_cast<int16_t>(value)) bad("a channel is too large");
    return static_cast<int16_t>(value);
  }
  Step step() {
    Step step;
    step.count = integer();
    for (auto* operands : {&step.from, &step.to}) {
      operands->resize(count());
      for (Operand& o : *operands) o = operand();
    }
    step.after.resize(count());
    for (Dependency& d : step.after) {
      d.lane = integer();
      d.step = integer();
    }
    return step;
  }
  bool empty() const { return rest_.empty(); }
  [[noreturn]] void bad(const char* why) const {
    fail(ncclInvalidUsage, "{}: no schedule: {}", source_, why);
  }

 private:
  std::string_view rest_;
  const std::string& source_;
};

}  // namespace

std::string write_schedule_bytes(const ScheduleFile& file) {
  std::string out(kScheduleBytes);
  Writer to(out);
  const Schedule& s = file.schedule;
  to.text(s.name);
  to.text(file.protocol);
  to.number(file.min_bytes);
  to.number(file.max_bytes);
  to.number(uint64_t{(file.in_place ? 1u : 0u) | (file.out_of_place ? 2u : 0u) |
                     (file.modes_declared ? 4u : 0u)});
  to.number(uint64_t{static_cast<unsigned>(s.collective.kind)});
  for (const int value : {s.collective.nranks, s.collective.root, s.chunks, s.cpu_nodes})
    to.number(int32_t{value});
  to.number(uint64_t{s.ranks.size()});
  for (const RankSchedule& rank : s.ranks) {
    to.number(rank.scratch_chunks);
    to.number(uint64_t{rank.lanes.size()});
    for (const Lane& lane : rank.lanes) {
      to.number(uint64_t{lane.steps.size()});
      for (const Step& step : lane.steps) to.step(step);
    }
  }
  to.number(uint64_t{s.routes.size()});
  for (const RouteHint& hint : s.routes) {
    for (const int32_t value : {hint.from, hint.to, int32_t{hint.channel}}) to.number(value);
    to.number(uint64_t{hint.links.size()});
    for (const int32_t link : hint.links) to.number(link);
  }
  if (!s.codecs.empty()) to.number(uint64_t{s.codecs.size()});
  for (const CodecSpec& spec : s.codecs) {
    to.number(uint64_t{static_cast<unsigned>(spec.kind)});
    to.number(uint64_t{spec.block});
    to.number(std::bit_cast<uint64_t>(spec.density));
  }
  return out;
}

ScheduleFile read_schedule_bytes(std::string_view bytes, const std::string& source) {
  Reader from(bytes.substr(std::min(kScheduleBytes.size(), bytes.size())), source);
  if (!bytes.starts_with(kScheduleBytes)) from.bad("it begins with something else");
  ScheduleFile file;
  Schedule& s = file.schedule;
  s.name = from.text();
  file.protocol = from.text();
  file.min_bytes = from.number();
  file.max_bytes = from.number();
  const uint64_t modes = from.number(), kind = from.number();
  if (modes > 7 || kind >= static_cast<uint64_t>(kCollectiveKinds)) from.bad("unknown values");
  file.in_place = (modes & 1) != 0;
  file.out_of_place = (modes & 2) != 0;
  file.modes_declared = (modes & 4) != 0;
  s.collective.kind = static_cast<CollectiveKind>(kind);
  for (int* value : {&s.collective.nranks, &s.collective.root}) *value = from.integer();
  for (int32_t* value : {&s.chunks, &s.cpu_nodes}) *value = from.integer();
  s.ranks.resize(from.count());
  for (RankSchedule& rank : s.ranks) {
    rank.scratch_chunks = from.integer();
    rank.lanes.resize(from.count());
    for (Lane& lane : rank.lanes) {
      lane.steps.resize(from.count());
      for (Step& step : lane.steps) step = from.step();
    }
  }
  s.routes.resize(from.count());
  for (RouteHint& hint : s.routes) {
    hint.from = from.integer();
    hint.to = from.integer();
    hint.channel = from.channel();
    hint.links.resize(from.count());
    for (int32_t& link : hint.links) link = from.integer();
  }
  if (!from.empty()) {  // only schedules with codecs have this part
    s.codecs.resize(from.count());
    if (s.codecs.empty()) from.bad("something follows it");
  }
  for (CodecSpec& spec : s.codecs) spec = from.codec();
  if (!from.empty()) from.bad("something follows it");
  return file;
}

}  // namespace weft
