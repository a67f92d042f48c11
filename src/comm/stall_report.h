// What a rank tells the others about itself when it waits for long.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/exec/activity.h"
#include "src/exec/call_history.h"

namespace weft {

struct StallReport {
  OperationState state;
  bool asks = false;  // it waits for long; otherwise this is an answer
  // Another communicator in which the thread that makes this rank's calls waits; 0: none.
  uint64_t elsewhere = 0;          // its public_key()
  uint64_t elsewhere_process = 0;  // the process that it waits for there
  static constexpr size_t kMostText = 159;
  std::string elsewhere_text;
  // CallHistory::latest().
  static constexpr size_t kLatest = 16;
  std::array<CallRun, kLatest> latest;
  uint32_t runs = 0;  // the used ones of `latest`

  // `runs` must not exceed kLatest.
  std::string encode() const;
  // Any bytes may come. False if they are no report; `report` is as before then.
  static bool decode(std::string_view bytes, StallReport& report);
};

}  // namespace weft
