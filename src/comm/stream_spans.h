// Network messages in the timeline of WEFT_TRACE: a row for each direction of each link.
#pragma once

#include <deque>
#include <string>

#include "src/base/trace.h"
#include "src/transport/stream_observer.h"

namespace weft {

// One thread at a time, like all observers.
class StreamSpans final : public StreamObserver {
 public:
  // `track`: the rank's trace::Track.
  StreamSpans(int64_t track, int peer, int channel, bool sends, const std::string& nic);

  void announced() noexcept override;
  void sent(std::span<const CarriedMessage> carried) noexcept override;
  void landed() noexcept override;
  void received(std::span<const CarriedMessage> carried) noexcept override;

 private:
  trace::Span span_of(std::span<const CarriedMessage> carried) const;
  void finish(trace::Span& span);

  const int64_t track_;
  const int32_t row_;
  const bool sends_;
  const char* const nic_;
  std::deque<trace::Span> flying_;  // sent, oldest first
  int64_t announced_ = 0;           // when the next message was announced; 0: it was not yet
  int64_t last_ = 0;                // when the last span ended
};

}  // namespace weft
