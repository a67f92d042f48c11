// See helping_hosts.h.
#include "src/comm/helping_hosts.h"

#include <algorithm>
#include <future>

#include "algorithms/generators/helped.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/communicator.h"
#include "src/comm/rendezvous.h"
#include "src/schedule/lower.h"
#include "src/transport/acceptor.h"

namespace weft {
namespace {

// A host that does not answer must not hold up the init for long.
constexpr double kAnswerS = 2;

struct Invited {
  std::string name;
  HelpTalk talk;
};

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (end > at) names.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

// Throws Error if the host cannot or may not help.
HelpTalk ask(const std::string& name, const Secret& secret, const HelpInvitation& invitation) {
  const Deadline deadline = in_seconds(kAnswerS);
  HelpTalk talk = HelpTalk::with(name, secret, deadline);
  talk.say(as_text(invitation), deadline);
  const std::string answer = talk.hear(deadline);
  if (answer != "+") fail(ncclRemoteError, "{}", answer.substr(std::min<size_t>(1, answer.size())));
  return talk;
}

// Rank 0: those that are ready to help, as many as ranks have use for. They are asked side by side.
// Others are asked only if some of the first cannot help.
std::vector<Invited> ready_to_help(const Config& config, int nranks, const Secret& secret) {
  std::vector<Invited> ready;
  const auto most = static_cast<size_t>(std::min(nranks, kMostCpuNodes));
  const HelpInvitation invitation{HelpInvitation::kVersion, nranks,
                                  nranks + static_cast<int>(most)};
  const std::vector<std::string> names = names_in(config.helpers);
  size_t next = 0;
  while (next < names.size() && ready.size() < most) {
    std::vector<std::pair<std::string, std::future<HelpTalk>>> asked;
    for (; next < names.size() && ready.size() + asked.size() < most; next++) {
      const std::string& name = names[next];
      try {
        asked.emplace_back(
            name, std::async(std::launch::async, [&] { return ask(name, secret, invitation); }));
      } catch (const std::system_error& error) {
        WEFT_WARN("helper {} is not used: no thread to ask it: {}", name, error.what());
      }
    }
    for (auto& [name, talk] : asked) {
      try {
        ready.push_back({name, talk.get()});
      } catch (const Error& error) {
        WEFT_WARN("helper {} is not used: {}", name, error.what());
      }
    }
  }
  for (; next < names.size(); next++)
    WEFT_INFO(kInit, "helper {} is not needed: {} ranks have use for {}", names[next], nranks,
              most);
  return ready;
}

}  // namespace

// What rank 0 tells the others: the names of the helpers, and where all members meet. The secret is
// covered by one that only the ranks can derive, because others may read what ranks gather.
struct HelpingHosts::Start {
  uint64_t number = 0;
  std::vector<std::string> names;
  UniqueId id;

  void cover(const Secret& of_ranks) {
    const Secret pad = derive(of_ranks, "helped", number);
    for (size_t i = 0; i < pad.size(); i++) id.secret[i] ^= pad[i];
  }
  std::string encode() const {
    std::string text = as_text(number) + as_text(id);
    for (const std::string& name : names) text += name + ",";
    return text;
  }
  static Start decode(const std::string& text) {
    Start start;
    const auto number = from_text<uint64_t>(text.substr(0, sizeof start.number));
    const auto id = number ? from_text<UniqueId>(text.substr(sizeof start.number, sizeof(UniqueId)))
                           : std::nullopt;
    if (!id || !id->is_sane()) fail(ncclInternalError, "rank 0 does not say who helps");
    start.number = *number;
    start.id = *id;
    start.names = names_in(text.substr(sizeof start.number + sizeof(UniqueId)));
    return start;
  }
};

HelpingHosts::HelpingHosts(const CommunicatorOptions& ranks, const Start& start, Lost lost)
    : rank_(ranks.rank), nranks_(ranks.nranks), names_(start.names), lost_(std::move(lost)) {
  plan_with({});
  CommunicatorOptions options;
  options.id = start.id;
  options.rank = rank_;
  options.nranks = nranks_ + static_cast<int>(names_.size());
  options.helped_ranks = nranks_;
  options.label = ranks.label + " with helpers";
  options.net = ranks.net;
  options.schedules = std::make_shared<const ImportedSchedules>();
  options.lost = [this](int member, const std::string& how) { member_gone(member, how); };
  const std::string label = options.label;
  members_ = std::make_unique<Communicator>(std::move(options));
  const uint64_t key = members_->key();
  members_->context().track =
      trace::Track(Config::from_environment().trace, label, key, key, rank_);
}

HelpingHosts::~HelpingHosts() = default;

const ImportedSchedule& HelpingHosts::plan_with(const CodecSpec& codec) {
  for (const Plan& plan : plans_)
    if (plan.codec == codec) return *plan.schedule;
  ScheduleFile file;
  file.schedule = make_helped(nranks_, static_cast<int>(names_.size()), codec);
  Plan& plan = plans_.emplace_back();
  plan.codec = codec;
  plan.schedule = ImportedSchedules::only(file, file.schedule.name)->all().front();
  plan.in_place = lower(*plan.schedule->in_place, rank_);
  plan.out_of_place = lower(*plan.schedule->out_of_place, rank_);
  plan.in_place.fifo_depth = plan.out_of_place.fifo_depth = plan.schedule->fifo_depth;
  return *plan.schedule;
}

std::unique_ptr<HelpingHosts> HelpingHosts::invite(const CommunicatorOptions& ranks,
                                                   const Config& config, ControlChannel& control,
                                                   Deadline deadline, Lost lost) {
  Start start;
  if (ranks.rank == 0) {
    const Secret shared = help_secret(config.secret);
    std::vector<Invited> ready = ready_to_help(config, ranks.nranks, shared);
    HelpStart go;
    fill_random(&go.number, sizeof go.number);
    start.number = go.number;
    go.ranks = ranks.nranks;
    go.members = ranks.nranks + static_cast<int>(ready.size());
    go.at.host = host_identity(config);
    const auto addresses = Acceptor::instance().offer(config, UniqueId::kMostAddresses);
    go.at.address_count = static_cast<uint8_t>(addresses.size());
    std::copy_n(addresses.begin(), addresses.size(), go.at.addresses);
    start.id = go.at;
    start.id.secret = helped_secret(shared, go.number);
    if (!ready.empty()) Rendezvous::open(start.id.secret);
    for (Invited& helper : ready) {
      go.member = ranks.nranks + static_cast<int>(start.names.size());
      start.names.push_back(helper.name);
      try {
        helper.talk.say(as_text(go), in_seconds(kAnswerS));
      } catch (const Error& error) {
        // The members will miss it, and go on without helpers.
        WEFT_WARN("helper {} does not listen any more: {}", helper.name, error.what());
      }
    }
    start.cover(ranks.id.secret);
  }
  start = Start::decode(control.all_gather(ranks.rank == 0 ? start.encode() : "", deadline)[0]);
  start.cover(ranks.id.secret);  // uncovers it
  if (start.names.empty()) return nullptr;
  HeldRendezvous held(start.id.secret);
  if (ranks.rank != 0) held.hand_over();
  std::unique_ptr<HelpingHosts> helpers;
  std::string failure;
  try {
    helpers = std::make_unique<HelpingHosts>(ranks, start, std::move(lost));
    held.hand_over();
  } catch (const Error& error) {
    failure = error.what();
  }
  // All ranks have helpers, or none has.
  for (const std::string& theirs : control.all_gather(failure, deadline))
    if (failure.empty()) failure = theirs;
  if (failure.empty()) {
    helpers->watch_over();
    return helpers;
  }
  if (ranks.rank == 0) WEFT_WARN("helpers {} are not used: {}", config.helpers, failure);
  if (helpers != nullptr) helpers->stop();
  return nullptr;
}

// From now on a helper that goes is a fault of the ranks.
void HelpingHosts::watch_over() {
  std::string gone;
  {
    std::lock_guard lock(mutex_);
    watched_ = true;
    gone = gone_;
  }
  if (!gone.empty()) lost_(gone);
}

void HelpingHosts::member_gone(int member, const std::string& how) {
  if (member < nranks_ || stopped_) return;  // the ranks hear of each other by themselves
  std::string text;
  {
    std::lock_guard lock(mutex_);
    if (!gone_.empty()) return;
    text = gone_ =
        fmt::format("helper {} died: {}", names_[static_cast<size_t>(member - nranks_)], how);
    if (!watched_) return;
  }
  lost_(text);
}

void HelpingHosts::begin() {
  if (members_ == nullptr) return;
  members_->begin();
  announced_.clear();
}

bool HelpingHosts::has(const host::RankContext* context) const {
  return members_ != nullptr && &members_->context() == context;
}

Call HelpingHosts::send_of(const HelpJob& job, int helper) const {
  Call send;
  send.kind = CollectiveKind::kSendRecv;
  send.input = &job;
  send.count = sizeof job;
  send.reduction.type = ncclInt8;
  send.root = nranks_ + helper;
  send.sends = true;
  return send;
}

// The lock is not held while the members settle on a text: the control thread takes it.
std::string HelpingHosts::failure() {
  if (members_ == nullptr || !members_->stopped()) return "";
  {
    std::lock_guard lock(mutex_);
    if (!gone_.empty()) return gone_;
  }
  return members_->faults().settle().text;
}

host::Task& HelpingHosts::add(host::Batch& batch, const Call& call, bool in_place,
                              const ImportedSchedule& schedule) {
  const Plan& plan = *std::find_if(plans_.begin(), plans_.end(), [&](const Plan& one) {
    return one.schedule.get() == &schedule;
  });
  if (const std::string why = failure(); !why.empty()) throw Disagreement(ncclRemoteError, why);
  const uint64_t number = members_->host_tasks().next_number();
  if (rank_ == 0) {
    Announced& announced = announced_.emplace_back();
    announced.job = {call.count, number, call.reduction, plan.codec};
    for (size_t k = 0; k < names_.size(); k++)
      announced.sends.push_back(send_of(announced.job, static_cast<int>(k)));
    for (const Call& send : announced.sends) members_->add_to(batch, send);
  }
  return members_->host_tasks().add_part(batch, call, in_place ? plan.in_place : plan.out_of_place,
                                         static_cast<uint32_t>(plan.schedule->hash) | 1u, "helped",
                                         number);
}

// Telling the helpers needs the control thread, which may come here too. It must not wait.
void HelpingHosts::stop() noexcept {
  const std::unique_lock lock(ending_, std::try_to_lock);
  if (!lock || stopped_.exchange(true)) return;
  try {
    members_->stop(ncclRemoteError, "the ranks have ended their communicator", true);
  } catch (const std::exception& error) {
    WEFT_WARN("helpers could not be told that the ranks have ended: {}", error.what());
  }
}

void HelpingHosts::finish() {
  bool over = false;
  {
    std::lock_guard lock(ending_);
    over = stopped_.exchange(true);
  }
  if (!over && !members_->stopped() && rank_ == 0) {
    host::Batch batch;
    begin();
    const HelpJob last;
    std::vector<Call> sends;
    for (size_t k = 0; k < names_.size(); k++) sends.push_back(send_of(last, static_cast<int>(k)));
    for (const Call& send : sends) members_->add_to(batch, send);
    const host::Outcome outcome = batch.run(0);
    if (outcome.code != ncclSuccess)
      WEFT_INFO(kInit, "helpers could not be told that there are no more calls: {}", outcome.text);
  }
  members_.reset();
}

}  // namespace weft
