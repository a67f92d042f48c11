// See stream_spans.h.
#include "src/comm/stream_spans.h"

#include <algorithm>
#include <utility>

namespace weft {

StreamSpans::StreamSpans(int64_t track, int peer, int channel, bool sends, const std::string& nic)
    : track_(track),
      row_(trace::network_row(peer, channel, sends)),
      sends_(sends),
      nic_(trace::keep(nic)) {}

trace::Span StreamSpans::span_of(std::span<const CarriedMessage> carried) const {
  trace::Span span;
  span.track = track_;
  span.row = row_;
  span.nic = nic_;
  span.name = sends_ ? "network send" : "network receive";
  span.operation = carried.empty() ? 0 : carried.front().operation;
  for (const CarriedMessage& message : carried) span.bytes += message.bytes;
  return span;
}

// Several messages can be in flight, but a row shows one span at a time. So a span begins no
// earlier than the last one ended.
void StreamSpans::finish(trace::Span& span) {
  span.end = trace::now();
  span.begin = std::max(span.begin, last_);
  last_ = span.end;
  trace::add(span);
}

void StreamSpans::announced() noexcept {
  if (announced_ == 0) announced_ = trace::now();
}

void StreamSpans::sent(std::span<const CarriedMessage> carried) noexcept {
  flying_.push_back(span_of(carried));
  flying_.back().begin = std::exchange(announced_, 0);
}

void StreamSpans::landed() noexcept {
  finish(flying_.front());
  flying_.pop_front();
}

// A small message is not announced. Its start is unknown, so its span has no length.
void StreamSpans::received(std::span<const CarriedMessage> carried) noexcept {
  trace::Span span = span_of(carried);
  span.begin = announced_ != 0 ? std::exchange(announced_, 0) : trace::now();
  finish(span);
}

}  // namespace weft
