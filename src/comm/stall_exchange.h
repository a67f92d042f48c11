// Finds out why a rank waits for long. It tells the other ranks what it does, and its latest calls:
// a GPU may wait in an earlier one than the last that was launched. A rank that made one of them
// differently says so, and one for which it waits answers. So ranks whose calls disagree are named
// although no message passes between them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "src/comm/communicator_options.h"
#include "src/comm/news.h"
#include "src/comm/stall_report.h"
#include "src/exec/host/batch.h"

namespace weft {

// hear() is for the control thread, tell() for any.
class StallExchange {
 public:
  using Tell = std::function<void(const News&)>;
  // Ranks disagree: all must give up with this text.
  using Disagree = std::function<void(const std::string& text)>;
  StallExchange(const CommunicatorOptions& options, host::RankContext& context, uint64_t process,
                Tell tell, Disagree disagree);

  // This rank has waited long.
  void tell();
  // Another rank's report.
  void hear(const News& news);

 private:
  StallReport report() const;
  // Looks for a call in which both take part and which they make differently.
  std::string disagreement(int other, const StallReport& theirs) const;
  // The two communicators in which two ranks wait for each other; empty: none.
  std::string crossing(int other, const StallReport& theirs) const;

  const CommunicatorOptions& options_;
  host::RankContext& context_;
  const uint64_t process_;
  const Tell tell_;
  const Disagree disagree_;
  std::map<int, uint64_t> answered_;  // per rank: its operations begun when this rank answered
};

}  // namespace weft
