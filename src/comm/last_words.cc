// The part of stall_exchange.h for ranks that leave: what they have called must fit together,
// though a call may have ended without a message from the others.
#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/comm/stall_exchange.h"
#include "src/transport/event_loop.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kFirstAsk{50}, kLastAsk{200};
// In larger communicators a rank does not say the same again when another one asks. One that asks
// may know old counts of sends then, so it may not see a send that nobody received.
constexpr int kMostAnswers = 64;
// Words go to all ranks over several links each, so in the largest communicators nobody asks.
constexpr int kMostAsking = 256;

}  // namespace

// The ranks of a rooted call need not hear from each other.
bool StallExchange::may_lack_others() const {
  std::array<CallRun, StallReport::kLatest> latest;
  if (context_.history.latest(latest) == 0) return false;
  const PastCall& last = latest.front().call;
  switch (last.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return true;
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather:
      return last.root != context_.rank;
    default:
      return false;
  }
}

// In larger communicators a rank that has exchanged no messages with other hosts does not ask.
bool StallExchange::may_have_lost_sends() const {
  for (int peer = 0; peer < options_.nranks; peer++) {
    if (peer == context_.rank || !around_.elsewhere(peer)) continue;
    if (options_.nranks <= kMostAnswers || context_.messages.begun(true, peer) > 0 ||
        context_.messages.begun(false, peer) > 0)
      return true;
  }
  return false;
}

void StallExchange::send_last_words(StallReport::LastWords what) {
  StallReport mine = report();
  mine.last_words = what;
  mine.calls = context_.history.begun();
  uint64_t said = mine.calls + 1;
  for (int peer = 0; peer < options_.nranks; peer++) {
    if (peer == context_.rank || !around_.elsewhere(peer)) continue;
    const uint64_t sends = context_.messages.begun(true, peer);
    said += sends;
    if (sends > 0 && mine.sends.size() < StallReport::kMostSends)
      mine.sends.push_back({peer, sends});
  }
  const bool asked = what == StallReport::LastWords::kTells;
  if (asked && (leaving_ || (said == said_ && options_.nranks > kMostAnswers))) return;
  leaving_ = leaving_ || !asked;
  said_ = said;
  send(mine);
}

void StallExchange::hear_last_words(int other, const StallReport& theirs) {
  const bool asks = theirs.last_words == StallReport::LastWords::kAsks;
  LastWords words{theirs.calls, 0, asks, theirs};
  for (const StallReport::Sends& sends : theirs.sends)
    if (sends.peer == context_.rank) words.sends = sends.count;
  {
    std::lock_guard lock(mutex_);
    last_words_[other] = words;
  }
  changed_.notify_all();
  if (asks) send_last_words(StallReport::LastWords::kTells);
}

bool StallExchange::has_heard_all(uint64_t calls, bool only_elsewhere) {
  for (int peer = 0; peer < options_.nranks; peer++) {
    if (peer == context_.rank || around_.gone(peer)) continue;
    if (only_elsewhere && !around_.elsewhere(peer)) continue;
    const auto words = last_words_.find(peer);
    if (words == last_words_.end() || words->second.calls < calls) return false;
  }
  return true;
}

std::string StallExchange::say_last_words(std::chrono::milliseconds most) {
  using Clock = std::chrono::steady_clock;
  if (options_.nranks > kMostAsking) return "";
  const bool lacks_others = may_lack_others();
  const uint64_t calls = lacks_others ? context_.history.begun() : 0;
  const auto end = Clock::now() + most;
  {
    std::lock_guard lock(mutex_);
    if (options_.nranks <= kMostAnswers)
      std::erase_if(last_words_, [](const auto& words) { return !words.second.final; });
  }
  if (!(lacks_others || may_have_lost_sends())) return "";
  for (auto pause = kFirstAsk;; pause = std::min(2 * pause, kLastAsk)) {
    EventLoop::instance().run([this] { send_last_words(StallReport::LastWords::kAsks); });
    std::unique_lock lock(mutex_);
    const auto done = [&] {
      return context_.stop.load() != 0 || has_heard_all(calls, !lacks_others);
    };
    if (changed_.wait_for(lock, pause, done) || Clock::now() >= end) break;
  }
  std::string different;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [peer, words] : last_words_)
      if (different.empty()) different = disagreement(peer, words.report);
  }
  if (!different.empty() && context_.stop.load() == 0) {
    EventLoop::instance().run([&] { around_.disagree(different); });
    return "";
  }
  std::lock_guard lock(mutex_);
  for (const auto& [peer, words] : last_words_)
    if (const uint64_t received = context_.messages.begun(false, peer); words.sends > received)
      return fmt::format("{} of {} sends from rank {} to rank {} were never received",
                         words.sends - received, words.sends, peer, context_.rank);
  return "";
}

}  // namespace weft
