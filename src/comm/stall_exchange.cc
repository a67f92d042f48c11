// See stall_exchange.h.
#include "src/comm/stall_exchange.h"

#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/comm/handle.h"
#include "src/exec/datatype.h"
#include "src/schedule/collective.h"
#include "src/transport/handshake.h"

namespace weft {
namespace {

using Phase = OperationState::Phase;

PastCall call_of(const OperationState& state) {
  return common_call(state.kind, state.type, state.op, state.root,
                     state.count * element_size(static_cast<ncclDataType_t>(state.type)));
}

uint64_t thread_of(uint64_t issuer) { return issuer >> 16; }

// At most as long as a report can carry.
std::string waits_in_words(const std::string& label, const OperationState& state) {
  return fmt::format("{} waits for rank {} in operation {}, {}", label, state.waits_for,
                     state.number, describe(call_of(state)))
      .substr(0, StallReport::kMostText);
}

// Calls `fn` for every communicator of this process that can be used and has no GPU: there a thread
// does not wait for its calls.
void for_each_ready(const std::function<void(const ncclComm&, Communicator&)>& fn) {
  for_each_handle([&](ncclComm& comm) {
    try {
      const Use use(comm, false);
      if (!use->on_gpu()) fn(comm, *use);
    } catch (const Error&) {
      // It is not ready yet, or not any more.
    }
  });
}

}  // namespace

StallExchange::StallExchange(const CommunicatorOptions& options, host::RankContext& context,
                             uint64_t process, Tell tell, Disagree disagree)
    : options_(options),
      context_(context),
      process_(process),
      tell_(std::move(tell)),
      disagree_(std::move(disagree)) {}

StallReport StallExchange::report() const {
  StallReport mine;
  mine.state = context_.activity.state();
  mine.runs = static_cast<uint32_t>(context_.history.latest(mine.latest));
  for_each_ready([&](const ncclComm& comm, const Communicator& other) {
    if (&other.context() == &context_ || thread_of(comm.issuer) != thread_of(options_.issuer))
      return;
    const OperationState state = other.context().activity.state();
    if (state.phase != Phase::kRunning || state.waits_for < 0 || state.waits_for >= comm.nranks)
      return;
    mine.elsewhere = other.key();
    mine.elsewhere_process = other.mesh().info(state.waits_for).process;
    mine.elsewhere_text = waits_in_words(other.context().label, state);
  });
  return mine;
}

void StallExchange::tell() {
  StallReport mine = report();
  mine.asks = true;
  tell_({News::Kind::kStalls, true, context_.rank, context_.rank, ncclSuccess, wall_clock_us(),
         mine.encode()});
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

std::string StallExchange::crossing(int other, const StallReport& theirs) const {
  const OperationState mine = context_.activity.state();
  if (theirs.elsewhere == 0 || theirs.elsewhere_process != process_ ||
      mine.phase != Phase::kRunning || mine.waits_for != other)
    return "";
  bool idle_there = false;  // this rank's thread would have to make that call, but it waits here
  for_each_ready([&](const ncclComm& comm, const Communicator& there) {
    idle_there = idle_there || (there.key() == theirs.elsewhere &&
                                thread_of(comm.issuer) == thread_of(options_.issuer) &&
                                there.context().activity.state().phase != Phase::kRunning);
  });
  if (!idle_there) return "";
  // Both ranks may find it at once. They must say it alike.
  const std::string here = waits_in_words(context_.label, mine);
  const std::string& there = theirs.elsewhere_text;
  return fmt::format("two communicators are used in opposite orders: {}, while {}",
                     std::min(here, there), std::max(here, there));
}

void StallExchange::hear(const News& news) {
  StallReport theirs;
  if (news.rank == context_.rank || !StallReport::decode(news.text, theirs)) return;
  if (const std::string text = disagreement(news.rank, theirs); !text.empty())
    return disagree_(text);
  if (const std::string text = crossing(news.rank, theirs); !text.empty()) {
    disagree_(text);
    // The other rank waits in the other communicator.
    return for_each_ready([&](const ncclComm&, Communicator& there) {
      if (there.key() == theirs.elsewhere) there.announce(ncclInvalidUsage, text);
    });
  }
  // The one that is waited for answers once per wait.
  if (!theirs.asks || theirs.state.waits_for != context_.rank) return;
  uint64_t& answered = answered_[news.rank];
  if (answered == theirs.state.begun) return;
  answered = theirs.state.begun;
  tell_({News::Kind::kStalls, true, context_.rank, context_.rank, ncclSuccess, wall_clock_us(),
         report().encode()});
}

}  // namespace weft
