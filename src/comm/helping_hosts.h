// The hosts that help the ranks of a communicator (WEFT_HELPERS). Ranks and helpers have a
// communicator of their own, in which helpers are the last members. In all_reduces by a helped plan
// (algorithms/generators/helped.h) they are the CPU nodes of the schedule. Rank 0 tells them of
// every such call. help_service.h is the other side.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/comm/call.h"
#include "src/comm/communicator_options.h"
#include "src/comm/control_channel.h"
#include "src/comm/help_talk.h"
#include "src/exec/host/batch.h"
#include "src/planner/imported_schedules.h"
#include "src/schedule/program.h"

namespace weft {

class Communicator;

// For the thread that makes calls. Any thread may call stop().
class HelpingHosts {
  struct Start;

 public:
  // Called on the control thread when a helper has gone, with a text that names it.
  using Lost = std::function<void(const std::string& text)>;

  // Invites the hosts in `config.helpers`. Rank 0 warns of those that cannot help. Collective.
  // nullptr on all ranks if nobody helps. Throws Error if the ranks themselves fail.
  static std::unique_ptr<HelpingHosts> invite(const CommunicatorOptions& ranks,
                                              const Config& config, ControlChannel& control,
                                              Deadline deadline, Lost lost);
  HelpingHosts(const CommunicatorOptions& ranks, const Start& start, Lost lost);  // for invite()
  ~HelpingHosts();
  HelpingHosts(const HelpingHosts&) = delete;
  HelpingHosts& operator=(const HelpingHosts&) = delete;

  const ImportedSchedule& plan() const { return *plans_.front().schedule; }
  // The plan whose messages have this codec. It lives as long as this.
  const ImportedSchedule& plan_with(const CodecSpec& codec);
  const std::vector<std::string>& names() const { return names_; }

  // As Communicator::begin() and add_to().
  void begin();
  // `plan`: one of the above.
  host::Task& add(host::Batch& batch, const Call& call, bool in_place,
                  const ImportedSchedule& plan);
  bool has(const host::RankContext* context) const;
  bool over() const { return members_ == nullptr; }  // after finish()
  std::string failure();                             // why there are no more sums; empty: there are

  // Ends every wait, and tells the helpers.
  void stop() noexcept;
  // There are no more calls. Helpers go when they have sent everything. Only has() and stop() may
  // follow.
  void finish();

 private:
  void member_gone(int member, const std::string& how);
  void watch_over();
  Call send_of(const HelpJob& job, int helper) const;

  const int rank_, nranks_;
  const std::vector<std::string> names_;  // of the helpers, as in WEFT_HELPERS
  const Lost lost_;
  struct Plan {
    CodecSpec codec;
    std::shared_ptr<const ImportedSchedule> schedule;
    Program in_place, out_of_place;
  };
  std::deque<Plan> plans_;  // the first has no codec
  struct Announced {
    HelpJob job;
    std::vector<Call> sends;
  };
  std::deque<Announced> announced_;  // of the batch being built
  std::mutex mutex_;                 // protects the next two
  bool watched_ = false;
  std::string gone_;   // the first helper that has gone, in words
  std::mutex ending_;  // held while stop() ends the members
  std::atomic<bool> stopped_{false};
  std::unique_ptr<Communicator> members_;
};

}  // namespace weft
