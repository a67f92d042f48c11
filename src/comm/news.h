// What ranks tell each other about ranks that leave, die or fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "include/nccl.h"

namespace weft {

struct News {
  enum class Kind : uint8_t {
    kLeft = 1,     // the rank said goodbye
    kDied = 2,     // its process ended, or cannot be reached any more
    kAborted = 3,  // it gave up the communicator by itself
    kGaveUp = 4,   // an operation failed on `reporter`; all ranks give up
    kQuit = 6,     // it aborted when it had nothing to do any more
    kStalls = 5,   // what the rank does, while it or another one waits for long: a StallReport
    kStuck = 7,    // what its GPU waits for when another rank has gone
  };
  Kind kind = Kind::kLeft;
  bool primary = true;  // the reporter knew of no failure before this one
  int rank = -1;        // whom it is about; -1: nobody in particular
  int reporter = -1;    // -1: the rendezvous
  ncclResult_t code = ncclSuccess;
  int64_t when_us = 0;  // by the reporter's clock, since 1970
  std::string text;     // kDied: how it was noticed; kStalls: the report; otherwise the whole text

  bool is_failure() const {
    return kind != Kind::kLeft && kind != Kind::kStalls && kind != Kind::kStuck;
  }
  // The rank takes part in nothing more.
  bool is_departure() const {
    return kind != Kind::kGaveUp && kind != Kind::kStalls && kind != Kind::kStuck;
  }

  std::string encode() const;
  // Nothing if the bytes are no news.
  static std::optional<News> decode(std::string_view bytes);
};

int64_t wall_clock_us();

}  // namespace weft
