// See stall_exchange.h.
#include "src/comm/stall_exchange.h"

#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/exec/datatype.h"
#include "src/schedule/collective.h"
#include "src/transport/event_loop.h"
#include "src/transport/handshake.h"

namespace weft {
namespace {

using Phase = OperationState::Phase;

uint64_t bytes_of(const OperationState& state) {
  return state.count * element_size(static_cast<ncclDataType_t>(state.type));
}

std::string in_words(const OperationState& state) {
  const PastCall call = common_call(state.kind, state.type, state.op, state.root, bytes_of(state));
  return state.kind == CollectiveKind::kSendRecv
             ? fmt::format("a {} of {} bytes (type {})", state.sends ? "send" : "receive",
                           call.bytes, type_name(state.type))
             : fmt::format("operation {}, {}", state.number, describe(call));
}

std::string cut(const std::string& text) { return text.substr(0, StallReport::kMostText); }

}  // namespace

StallExchange::StallExchange(const CommunicatorOptions& options, host::RankContext& context,
                             Surroundings surroundings)
    : options_(options), context_(context), around_(std::move(surroundings)) {}

uint64_t StallExchange::key() const { return public_key(options_.id.secret); }

StallReport StallExchange::report() const {
  StallReport mine;
  mine.state = context_.activity.state();
  mine.runs = static_cast<uint32_t>(context_.history.latest(mine.latest));
  return mine;
}

// Other ranks take no report that is not later than the one before.
void StallExchange::send(const StallReport& report) {
  last_us_ = std::max(wall_clock_us(), last_us_ + 1);
  around_.tell({News::Kind::kStalls, true, context_.rank, context_.rank, ncclSuccess, last_us_,
                report.encode()});
}

std::vector<Sibling> StallExchange::own_siblings() const {
  std::vector<Sibling> all = around_.siblings();
  uint64_t thread = 0;
  for (const Sibling& sibling : all)
    if (sibling.exchange == this) thread = sibling.thread;
  std::erase_if(all, [&](const Sibling& one) { return thread == 0 || one.thread != thread; });
  return all;
}

void StallExchange::tell() {
  EventLoop::instance().run([this] {
    const std::vector<Sibling> own = own_siblings();
    StallReport mine = report();
    const OperationState& state = mine.state;
    if (state.begun != told_.state.begun) {
      passed_on_.clear();
      suspected_.clear();
    }
    round_++;
    mine.asks = true;
    if (!own.empty() && state.phase == Phase::kRunning) {
      const bool messages = state.kind == CollectiveKind::kSendRecv && state.waits_for >= 0 &&
                            state.waits_for < options_.nranks;
      if (messages) {
        mine.earlier = context_.messages.before_batch(state.waits_to_send, state.waits_for);
        // Of several messages the state has the sum, if they run as one.
        mine.needs_receive = state.sends && context_.messages.in_batch() == 1 &&
                             around_.fills_fifo(state.waits_for, bytes_of(state));
      }
      mine.hops.push_back(
          {{around_.process, own.front().thread},
           key(),
           state.begun,
           round_,
           -1,
           around_.alone(),
           cut(around_.who),
           cut(fmt::format("{} of communicator {}", in_words(state), around_.communicator))});
    }
    told_ = mine;
    send(mine);
    // Others may have told of waits for this thread before it waited itself.
    for (const Sibling& sibling : own) {
      const auto waiting = sibling.exchange->waiting_;
      for (const auto& [from, theirs] : waiting)
        if (waits() && sibling.exchange->holds_up(from.first, theirs)) {
          std::vector<WaitHop> hops = theirs.hops;
          hops.back().missing = sibling.exchange->context_.rank;
          pass_on(std::move(hops));
        }
    }
  });
}

bool StallExchange::waits() const {
  if (told_.hops.empty() || context_.stop.load() != 0) return false;
  const OperationState now = context_.activity.state();
  return now.phase == Phase::kRunning && now.begun == told_.state.begun;
}

bool StallExchange::holds_up(int other, const StallReport& theirs) const {
  const OperationState& state = theirs.state;
  if (theirs.hops.empty() || state.phase != Phase::kRunning) return false;
  if (state.kind != CollectiveKind::kSendRecv)
    return !context_.history.has_begun(state.number) && needs(state, other, context_.rank);
  // A message that this rank has begun to send may be on its way.
  return state.waits_for == context_.rank && (!state.waits_to_send || theirs.needs_receive) &&
         context_.messages.begun(!state.waits_to_send, other) <= theirs.earlier;
}

void StallExchange::pass_on(std::vector<WaitHop> hops) {
  const WaitHop& own = told_.hops.back();
  const auto again = std::find_if(hops.begin(), hops.end(),
                                  [&](const WaitHop& hop) { return hop.caller == own.caller; });
  if (again != hops.end()) {
    if (again->communicator != own.communicator || again->begun != own.begun) return;
    StallReport verdict;
    verdict.closed = true;
    verdict.hops.assign(again, hops.end());
    return give_up(verdict, own);
  }
  // A closed chain has one thread that comes first, and the chain that it began goes all the way.
  const WaitHop& first = hops.front();
  if (first.caller > own.caller || hops.size() >= StallReport::kMostHops) return;
  if (!passed_on_.emplace(first.caller, first.communicator, first.begun, first.round).second)
    return;
  StallReport mine = told_;
  mine.asks = false;
  mine.hops = std::move(hops);
  mine.hops.push_back(own);
  send(mine);
}

void StallExchange::break_up(const StallReport& verdict) const {
  for (const WaitHop& hop : verdict.hops) {
    if (hop.caller.process != around_.process) continue;
    for (const Sibling& sibling : around_.siblings())
      if (sibling.thread == hop.caller.thread && sibling.exchange->key() == hop.communicator)
        sibling.exchange->give_up(verdict, hop);
  }
}

// The ranks of this communicator hear of it first, because their failure ends other waits. Others
// that are known to wait for this thread wait in vain, too.
void StallExchange::give_up(const StallReport& verdict, const WaitHop& own) {
  if (!waits() || told_.state.begun != own.begun) return;
  const std::string text = deadlock_in_words(verdict.hops);
  if (!is_certain(verdict.hops)) {
    if (suspected_ == text) return;
    suspected_ = text;
    send(verdict);
    return around_.suspect(text);
  }
  send(verdict);
  for (const Sibling& sibling : own_siblings()) {
    StallExchange& other = *sibling.exchange;
    const bool part = std::any_of(verdict.hops.begin(), verdict.hops.end(),
                                  [&](const auto& hop) { return hop.communicator == other.key(); });
    if (!part && other.holds_up_any()) other.around_.disagree(text);
  }
  if (waits()) around_.disagree(text);
}

bool StallExchange::holds_up_any() const {
  return context_.stop.load() == 0 &&
         std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const auto& known) { return holds_up(known.first.first, known.second); });
}

std::string StallExchange::disagreement(int other, const StallReport& theirs) const {
  std::array<CallRun, CallHistory::kRuns> own;
  const size_t runs = context_.history.latest(own);
  uint64_t number = ~uint64_t{0};  // of the first call that differs
  PastCall mine, call;
  for (size_t i = 0; i < runs; i++)
    for (uint32_t k = 0; k < theirs.runs; k++) {
      const CallRun &a = own[i], &b = theirs.latest[k];
      const uint64_t first = std::max(a.first, b.first);
      if (a.call == b.call || first >= std::min({a.end, b.end, number})) continue;
      number = first;
      mine = a.call;
      call = b.call;
    }
  if (number == ~uint64_t{0}) return "";
  const bool first = context_.rank < other;
  return fmt::format(
      "operation {} is {} on rank {}, but {} on rank {}: all ranks must make the same calls in the "
      "same order",
      number, describe(first ? mine : call), first ? context_.rank : other,
      describe(first ? call : mine), first ? other : context_.rank);
}

void StallExchange::hear(const News& news) {
  StallReport theirs;
  if (news.rank == context_.rank || !StallReport::decode(news.text, theirs)) return;
  if (theirs.closed) return break_up(theirs);
  if (context_.stop.load() != 0) return;
  if (const std::string text = disagreement(news.rank, theirs); !text.empty())
    return around_.disagree(text);
  if (theirs.last_words != StallReport::LastWords::kNone) hear_last_words(news.rank, theirs);
  if (!theirs.hops.empty()) {
    std::erase_if(waiting_, [&](const auto& known) {
      return known.first.first == news.rank && known.second.state.begun != theirs.state.begun;
    });
    const WaitHop& first = theirs.hops.front();
    waiting_[{news.rank, {first.caller, first.communicator, first.begun, 0}}] = theirs;
    if (holds_up(news.rank, theirs)) {
      std::vector<WaitHop> hops = theirs.hops;
      hops.back().missing = context_.rank;
      for (const Sibling& sibling : own_siblings())
        if (sibling.exchange->waits()) sibling.exchange->pass_on(hops);
    }
  }
  // The one that is waited for answers once per wait.
  if (!theirs.asks || theirs.state.waits_for != context_.rank) return;
  uint64_t& answered = answered_[news.rank];
  if (answered == theirs.state.begun) return;
  answered = theirs.state.begun;
  send(report());
}

}  // namespace weft
