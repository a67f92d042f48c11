// See stall_report.h. Fields follow each other without padding, in the byte order of the host.
#include "src/comm/stall_report.h"

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

namespace weft {
namespace {

constexpr int kPhaseLimit = static_cast<int>(OperationState::Phase::kFailed) + 1;
constexpr int kKindLimit = kNamedKinds + 1;
constexpr int kTypeLimit = 16;

class ReportWriter {
 public:
  template <typename T>
  void number(const T& value) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void seconds(double value) { number(value); }
  template <typename T>
  void choice(T value, int /*limit*/) {
    number(static_cast<uint8_t>(value));
  }
  void size(uint32_t value, size_t /*most*/) { number(value); }
  void text(const std::string& value, size_t /*most*/) {
    number(static_cast<uint32_t>(value.size()));
    out_ += value;
  }
  template <typename T>
  void room_for(const std::vector<T>& /*list*/, uint32_t /*count*/) {}
  void check(bool /*holds*/) {}
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// After a refusal it reads nothing more.
class ReportReader {
 public:
  explicit ReportReader(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  void number(T& value) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    check(rest_.size() >= sizeof value);
    if (!good_) return;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
  }
  void seconds(double& value) {
    number(value);
    check(std::isfinite(value) && value >= 0);
  }
  // The byte is checked before it becomes a bool or an enum: other values of these are undefined.
  template <typename T>
  void choice(T& value, int limit) {
    uint8_t byte = 0;
    number(byte);
    check(byte < limit);
    if (good_) value = static_cast<T>(byte);
  }
  void size(uint32_t& value, size_t most) {
    uint32_t read = 0;
    number(read);
    check(read <= most);
    if (good_) value = read;
  }
  void text(std::string& value, size_t most) {
    uint32_t length = 0;
    size(length, most);
    check(length <= rest_.size() && rest_.substr(0, length).find('\0') == std::string_view::npos);
    if (!good_) return;
    value = rest_.substr(0, length);
    rest_.remove_prefix(length);
  }
  template <typename T>
  void room_for(std::vector<T>& list, uint32_t count) const {
    if (good_) list.resize(count);
  }
  void check(bool holds) { good_ = good_ && holds; }
  // It read everything, and refused nothing.
  bool done() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

// The fields in their order on the wire, for both directions.
template <typename Pass, typename State>
void pass_state(Pass& pass, State& state) {
  pass.choice(state.phase, kPhaseLimit);
  pass.choice(state.kind, kKindLimit);
  pass.choice(state.sends, 2);
  pass.choice(state.type, kTypeLimit);
  pass.number(state.op);
  pass.number(state.root);
  pass.number(state.number);
  pass.number(state.count);
  pass.number(state.begun);
  pass.number(state.together);
  pass.seconds(state.seconds);
  pass.number(state.waits_for);
  pass.choice(state.waits_to_send, 2);
  pass.number(state.lane);
  pass.number(state.step);
  pass.number(state.slice);
  pass.seconds(state.waits_seconds);
}

template <typename Pass, typename Run>
void pass_run(Pass& pass, Run& run) {
  pass.number(run.first);
  pass.number(run.end);
  pass.check(run.first <= run.end);
  pass.choice(run.call.kind, kKindLimit);
  pass.choice(run.call.type, kTypeLimit);
  pass.number(run.call.op);
  pass.number(run.call.root);
  pass.number(run.call.bytes);
}

template <typename Pass, typename Hop>
void pass_hop(Pass& pass, Hop& hop) {
  pass.number(hop.caller.process);
  pass.number(hop.caller.thread);
  pass.number(hop.communicator);
  pass.number(hop.begun);
  pass.number(hop.round);
  pass.number(hop.missing);
  pass.choice(hop.alone, 2);
  pass.text(hop.who, StallReport::kMostText);
  pass.text(hop.what, StallReport::kMostText);
}

template <typename Pass, typename Report>
void pass_report(Pass& pass, Report& report) {
  pass_state(pass, report.state);
  pass.choice(report.asks, 2);
  pass.number(report.earlier);
  pass.choice(report.needs_receive, 2);
  pass.choice(report.closed, 2);
  auto hops = static_cast<uint32_t>(report.hops.size());
  pass.size(hops, StallReport::kMostHops);
  pass.room_for(report.hops, hops);
  for (auto& hop : report.hops) pass_hop(pass, hop);
  pass.choice(report.last_words, 3);
  pass.number(report.calls);
  auto sends = static_cast<uint32_t>(report.sends.size());
  pass.size(sends, StallReport::kMostSends);
  pass.room_for(report.sends, sends);
  for (auto& [peer, count] : report.sends) {
    pass.number(peer);
    pass.number(count);
  }
  pass.size(report.runs, StallReport::kLatest);
  for (size_t i = 0; i < report.runs; i++) pass_run(pass, report.latest[i]);
}

}  // namespace

std::string StallReport::encode() const {
  ReportWriter writer;
  pass_report(writer, *this);
  return writer.take();
}

bool StallReport::decode(std::string_view bytes, StallReport& report) {
  StallReport read;
  ReportReader reader(bytes);
  pass_report(reader, read);
  if (!reader.done()) return false;
  report = read;
  return true;
}

}  // namespace weft
