// Finds out why a rank waits for long. It tells the other ranks what it does, and its latest calls:
// a GPU may wait in an earlier one than the last that was launched. A rank that made one of them
// differently says so, and one for which it waits answers. So ranks whose calls disagree are named
// although no message passes between them. In host mode it also finds threads that wait for each
// other in several communicators, see wait_chain.h.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/comm/communicator_options.h"
#include "src/comm/news.h"
#include "src/comm/siblings.h"
#include "src/comm/stall_report.h"
#include "src/exec/host/batch.h"

namespace weft {

// hear() is for the control thread, tell() for any.
class StallExchange {
 public:
  struct Surroundings {
    uint64_t process = 0;      // this process
    std::string communicator;  // in messages
    std::string who;           // this rank, for people of other communicators
    // A message to this rank that no FIFO can hold.
    std::function<bool(int peer, uint64_t bytes)> fills_fifo;
    std::function<void(const News&)> tell;
    // Ranks disagree: all must give up with this text.
    std::function<void(const std::string& text)> disagree;
    // Ranks may disagree: people should know.
    std::function<void(const std::string& text)> suspect;
    std::function<std::vector<Sibling>()> siblings;  // with this one
    std::function<bool()> alone;                     // see WaitHop
    std::function<bool(int peer)> elsewhere;         // it is on another host
    std::function<bool(int peer)> gone;
  };
  StallExchange(const CommunicatorOptions& options, host::RankContext& context,
                Surroundings surroundings);

  // This rank has waited long.
  void tell();
  // Another rank's report.
  void hear(const News& news);
  // Before this rank leaves: waits until the others have told what they have called. After a call
  // that may end before others have begun it, waits for them, too. Returns a send of another host
  // that this rank never received, in words; usually empty. For the thread that makes calls.
  std::string say_last_words(std::chrono::milliseconds most);

 private:
  using Origin = std::tuple<Caller, uint64_t, uint64_t, uint32_t>;  // of a chain

  uint64_t key() const;
  StallReport report() const;
  void send(const StallReport& report);
  // Looks for a call in which both take part and which they make differently.
  std::string disagreement(int other, const StallReport& theirs) const;
  // The rank's call cannot end before this rank's thread has made a call.
  bool holds_up(int other, const StallReport& theirs) const;
  bool holds_up_any() const;
  // last_words.cc
  void send_last_words(StallReport::LastWords what);
  void hear_last_words(int other, const StallReport& theirs);
  bool may_lack_others() const;
  bool may_have_lost_sends() const;
  bool has_heard_all(uint64_t calls, bool only_elsewhere);
  // This rank has told of a wait that lasts.
  bool waits() const;
  // Siblings of this rank's thread, with this one.
  std::vector<Sibling> own_siblings() const;
  // This rank holds up the end of the chain, and waits itself.
  void pass_on(std::vector<WaitHop> hops);
  // These waits are a deadlock; some of them may be this process's.
  void break_up(const StallReport& verdict) const;
  void give_up(const StallReport& verdict, const WaitHop& own);

  const CommunicatorOptions& options_;
  host::RankContext& context_;
  const Surroundings around_;
  // Control thread only.
  std::map<int, uint64_t> answered_;  // per rank: its operations begun when this rank answered
  int64_t last_us_ = 0;               // of the reports of this rank
  uint32_t round_ = 0;
  StallReport told_;                                       // of a wait, with its own hop
  std::string suspected_;                                  // what people were told of that wait
  std::map<std::pair<int, Origin>, StallReport> waiting_;  // what others have told of their waits
  std::set<Origin> passed_on_;                             // in the wait of told_
  uint64_t said_ = 0;     // calls and sends of the last words so far, plus one
  bool leaving_ = false;  // has said them

  struct LastWords {
    uint64_t calls = 0, sends = 0;  // sends to this rank
    bool final = false;             // it makes no more calls
    StallReport report;             // this rank may have made the calls later
  };
  std::mutex mutex_;  // protects last_words_
  std::condition_variable changed_;
  std::map<int, LastWords> last_words_;  // by rank
};

}  // namespace weft
