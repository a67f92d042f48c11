// See help_service.h.
#include "src/comm/help_service.h"

#include <array>
#include <deque>
#include <thread>

#include "algorithms/generators/helped.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/call.h"
#include "src/comm/communicator.h"
#include "src/schedule/lower.h"
#include "src/transport/acceptor.h"

namespace weft {
namespace {

constexpr double kTalkS = 20;
constexpr size_t kMostHelpedCodecs = 16;

struct HelpedPart {
  CodecSpec codec;
  uint32_t tag = 0;
  Program program;
};

// By codec, made when a call needs it.
class HelpedParts {
 public:
  explicit HelpedParts(const HelpStart& start) : start_(start) {}
  const HelpedPart& with(const HelpJob& job);

 private:
  const HelpStart& start_;
  std::deque<HelpedPart> parts_;
};

// What this helper does in calls whose messages have a codec.
const HelpedPart& HelpedParts::with(const HelpJob& job) {
  for (const HelpedPart& part : parts_)
    if (part.codec == job.codec) return part;
  if (parts_.size() > kMostHelpedCodecs)
    fail(ncclInvalidUsage, "ranks ask for too many codecs: {}", parts_.size());
  ScheduleFile file;
  file.schedule = make_helped(start_.ranks, start_.members - start_.ranks, job.codec);
  const auto plan = ImportedSchedules::only(file, file.schedule.name)->all().front();
  HelpedPart& part = parts_.emplace_back();
  part.codec = job.codec;
  part.tag = static_cast<uint32_t>(plan->hash) | 1u;
  part.program = lower(*plan->out_of_place, start_.member);
  part.program.fifo_depth = plan->fifo_depth;
  return part;
}

void finish(Communicator& members, host::Batch& batch) {
  const host::Outcome outcome = batch.run(0);
  if (outcome.code == ncclSuccess) return;
  const FaultState::Answer answer = members.give_up(outcome.code, outcome.text);
  throw Error(answer.code, answer.text);
}

}  // namespace

HelpService::HelpService(const std::string& secret, uint64_t memory_bytes, Tell tell)
    : secret_(help_secret(secret)), memory_bytes_(memory_bytes), tell_(std::move(tell)) {
  Acceptor::instance().serve(
      secret_, 0, [this](Fd connection, const Purpose& purpose, const Session& session) {
        if (purpose.kind != Purpose::kHelp) return;
        auto talk = std::make_shared<HelpTalk>(std::move(connection), session);
        std::lock_guard lock(mutex_);
        try {
          std::thread([this, talk] { serve(std::move(*talk)); }).detach();
          threads_++;
        } catch (const std::system_error& error) {
          tell_(fmt::format("an invitation came to nothing: no thread: {}", error.what()));
        }
      });
}

HelpService::~HelpService() {
  Acceptor::instance().stop(secret_, 0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return threads_ == 0; });
}

void HelpService::wait_for(uint64_t communicators) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return served_ >= communicators; });
}

void HelpService::tell(const std::string& line) {
  std::lock_guard lock(mutex_);
  tell_(line);
}

std::string HelpService::reserve(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > memory_bytes_ - reserved_)
    return fmt::format("it has no room: {} MiB are needed, {} of {} MiB are in use", bytes >> 20,
                       reserved_ >> 20, memory_bytes_ >> 20);
  reserved_ += bytes;
  return "";
}

void HelpService::release(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  reserved_ -= bytes;
}

// A thread of its own. Whatever goes wrong ends only this communicator.
void HelpService::serve(HelpTalk talk) {
  try {
    help(talk);
  } catch (const std::exception& error) {
    tell(fmt::format("an invitation came to nothing: {}", error.what()));
  }
  std::lock_guard lock(mutex_);
  threads_--;
  changed_.notify_all();
}

void HelpService::help(HelpTalk& talk) {
  const auto invited = read_invitation(talk.hear(in_seconds(kTalkS)));
  if (!invited) {
    talk.say("-it runs another version of this library", in_seconds(kTalkS));
    fail(ncclInvalidUsage, "it is of another version of this library");
  }
  const uint64_t bytes = helped_memory(invited->members);
  const std::string full = reserve(bytes);
  talk.say(full.empty() ? "+" : "-" + full, in_seconds(kTalkS));
  if (!full.empty()) fail(ncclSystemError, "{}", full);
  const std::shared_ptr<void> reserved(nullptr, [this, bytes](void*) { release(bytes); });
  const auto start = read_start(talk.hear(in_seconds(kTalkS)), *invited);
  if (!start) fail(ncclInvalidUsage, "the ranks do not say where to meet");
  const std::string who =
      fmt::format("communicator {:016x}: helper {} of {} for {} ranks", start->number,
                  start->member - start->ranks, start->members - start->ranks, start->ranks);
  Totals totals;
  std::string how = "the ranks are done";
  try {
    CommunicatorOptions options;
    options.id = start->at;
    options.id.secret = helped_secret(secret_, start->number);
    options.rank = start->member;
    options.nranks = start->members;
    options.helped_ranks = start->ranks;
    options.label = who;
    options.schedules = std::make_shared<const ImportedSchedules>();
    Communicator members(std::move(options));
    members.context().track = trace::Track(Config::from_environment().trace, who, members.key(),
                                           members.key(), start->member);
    tell(fmt::format("{}, begins", who));
    work(*start, members, totals);
  } catch (const Error& error) {
    how = error.what();
  }
  tell(fmt::format("{}, ends after {} calls, {} MiB summed: {}", who, totals.calls,
                   totals.bytes >> 20, how));
  std::lock_guard lock(mutex_);
  served_++;
  changed_.notify_all();
}

void HelpService::work(const HelpStart& start, Communicator& members, Totals& totals) {
  // Ranks may have nothing to sum for hours.
  members.context().timeout_s = members.context().stall_warning_s = 0;
  members.context().stalls = nullptr;
  HelpedParts parts(start);
  const HelpedShares shares = helped_shares(start.ranks, start.members - start.ranks);
  host::Batch batch;
  for (;;) {
    std::array<char, sizeof(HelpJob)> said{};
    Call receive;
    receive.kind = CollectiveKind::kSendRecv;
    receive.output = said.data();
    receive.count = said.size();
    receive.reduction.type = ncclInt8;
    members.begin();
    batch.clear();
    members.add_to(batch, receive);
    finish(members, batch);
    const HelpJob job = read_job({said.data(), said.size()});
    if (job.count == 0) return;
    const HelpedPart& part = parts.with(job);
    Call call;
    call.kind = CollectiveKind::kAllReduce;
    call.count = job.count;
    call.reduction = job.reduction;
    members.begin();
    batch.clear();
    members.host_tasks().add_part(batch, call, part.program, part.tag, "helped", job.number);
    finish(members, batch);
    totals.calls++;
    totals.bytes += job.count * element_size(job.reduction.type) *
                    static_cast<uint64_t>(start.ranks * shares.helper) /
                    static_cast<uint64_t>(shares.chunks);
  }
}

}  // namespace weft
