// The part of a communicator that ends waits, after an abort, a dead peer or a kernel's error.
#include "src/base/error.h"
#include "src/base/last_error.h"
#include "src/base/log.h"
#include "src/base/log_time.h"
#include "src/comm/communicator.h"
#include "src/comm/helping_hosts.h"
#include "src/exec/datatype.h"
#include "src/transport/doorbell.h"

namespace weft {
namespace {

// After a rank has died, waits for others go on this long: what it sent before may be all that they
// need. Waits for the dead rank itself end earlier.
constexpr double kPatienceS = 1;
// How often a GPU's error word is read once a rank has gone.
constexpr double kGpuPollS = 0.05;
// Begins what a batch says about a peer that has gone, after what it waited for.
constexpr std::string_view kGonePeer = ", but that peer";

}  // namespace

News Communicator::report(News::Kind kind, ncclResult_t code, const std::string& text) const {
  return {kind, !vigil_.faults.known(), options_.rank, options_.rank, code, wall_clock_us(), text};
}

// Once waits have ended, kernels may be done without having moved their data. So nobody may be told
// then that all is well, though the record of the failure is not settled yet.
void Communicator::poll_gpu() {
  if (find_gpu_error() || (gpu_ != nullptr && stopped())) vigil_.faults.settle();
}

bool Communicator::find_gpu_error() {
  if (gpu_ == nullptr || stopped()) return false;
  const std::string error = gpu_->error();
  if (error.empty()) return false;
  const bool held = vigil_.faults.holds();
  vigil_.faults.wake();
  announce(held ? ncclRemoteError : ncclInvalidUsage, fmt::format("{}: {}", context_.label, error));
  return true;
}

// A kernel that waits for a rank that has gone ends by itself. Other ranks may wait for this one
// then, so it tells them even if its user asks for nothing.
void Communicator::guard_gpu() {
  if (!cuda::available() || vigil_.gpu_errors != nullptr) return;
  try {
    vigil_.gpu_errors = std::make_unique<Timer>([this] {
      {
        std::lock_guard lock(vigil_.mutex);  // the constructor sets it
        if (gpu_ == nullptr) return;
      }
      if (find_gpu_error() || stopped()) vigil_.gpu_errors->cancel();
    });
    vigil_.gpu_errors->every(kGpuPollS);
  } catch (const Error& error) {
    WEFT_WARN("{}: no timer to look for errors of kernels: {}; ncclCommGetAsyncError finds them",
              context_.label, error.what());
  }
}

// A GPU that waits ends by itself, or when patience does. Then the record of the failure is
// complete, so what it waits for is told now.
void Communicator::tell_gpu_wait() {
  News news;
  {
    std::lock_guard lock(vigil_.mutex);
    if (gpu_ == nullptr || vigil_.watch == nullptr || stopped()) return;
    if (context_.activity.state().waits_for < 0) gpu_->long_wait();
    const OperationState state = context_.activity.state();
    // What was told may have ended since. (Replays of graphs are not known as launches.)
    if (state.waits_for < 0 || !(gpu_->busy() || gpu_->graphs() > 0)) return;
    const PastCall call =
        common_call(state.kind, state.type, state.op, state.root,
                    state.count * element_size(static_cast<ncclDataType_t>(state.type)));
    news =
        report(News::Kind::kStuck, ncclRemoteError,
               fmt::format("{}: its GPU waits for peer {} since {}; the last call is operation {}, "
                           "{}{}",
                           context_.label, state.waits_for, log::utc_time(state.waits_seconds),
                           state.number, describe(call), context_.place));
  }
  vigil_.faults.add_stuck(news, news.text);
  vigil_.watch->tell(news);
}

void Communicator::end_waits() {
  HelpingHosts* helpers = nullptr;
  {
    std::lock_guard lock(vigil_.mutex);
    context_.stop.store(1, std::memory_order_release);
    if (cpu_nodes_ != nullptr) cpu_nodes_->stop();
    if (gpu_ != nullptr) gpu_->stop();
    if (host_ != nullptr) helpers = host_->helpers();
    if (context_.door != nullptr) wake_all(*context_.door);
  }
  if (helpers != nullptr) helpers->stop();  // it tells others, so the mutex must be free
}

void Communicator::stop(ncclResult_t code, const std::string& why, bool tell, bool quits) {
  News news = report(quits ? News::Kind::kQuit : News::Kind::kAborted, code, why);
  vigil_.faults.add(news, why);
  end_waits();
  if (!tell) {
    // The caller goes on, perhaps with the same buffers in another communicator.
    std::lock_guard lock(vigil_.mutex);
    if (mesh_ != nullptr) mesh_->keep_nics_from_buffers();
    return;
  }
  if (code == ncclInternalError) news.code = ncclRemoteError;  // for the others it is remote
  if (vigil_.watch != nullptr) vigil_.watch->tell(news);
  if (control_ != nullptr) control_->abort(news);
}

void Communicator::cancel() {
  News news = report(News::Kind::kAborted, ncclInternalError,
                     fmt::format("rank {} aborted the communicator", options_.rank));
  vigil_.faults.add(news, news.text);
  end_waits();
  news.code = ncclRemoteError;
  std::shared_ptr<PeerWatch> watch;
  {
    std::lock_guard lock(vigil_.mutex);  // the constructor changes both
    watch = vigil_.watch;
    if (control_ != nullptr) control_->abort(news);
  }
  if (watch != nullptr) watch->tell(news);
}

void Communicator::silence() {
  if (control_ != nullptr) control_->silence();
  if (vigil_.watch != nullptr) vigil_.watch->leave(options_.rank);
  vigil_.patience.reset();
  vigil_.gpu_errors.reset();
}

void Communicator::check() const {
  if (!stopped()) return;
  const FaultState::Answer answer = vigil_.faults.settle();
  throw Error(answer.code, answer.text);
}

FaultState::Answer Communicator::give_up(ncclResult_t code, const std::string& what) {
  // Of a helper that gave up only its own communicator has heard.
  HelpingHosts* helpers = what.empty() ? host_->helpers() : nullptr;
  const std::string text = helpers != nullptr ? helpers->failure() : what;
  if (!stopped()) {
    vigil_.faults.wake();
    const bool heard = text.empty() || (code == ncclRemoteError &&
                                        vigil_.faults.wait_known(FaultState::kNewsComes));
    // What was heard says why. This operation only says where.
    announce(heard ? ncclRemoteError : code, heard ? text.substr(0, text.find(kGonePeer)) : text);
  }
  return vigil_.faults.settle();
}

void Communicator::announce(ncclResult_t code, const std::string& text) {
  const News news = report(News::Kind::kGaveUp, code, text);
  vigil_.faults.add(news, text);
  if (!text.empty()) remember_error(text);
  end_waits();
  if (vigil_.watch != nullptr) vigil_.watch->tell(news);
  control_->abort(news);
}

void Communicator::add_to(host::Batch& batch, const Call& call) {
  try {
    host_->add(batch, call);
  } catch (const Disagreement& error) {
    const FaultState::Answer answer = give_up(error.code(), error.what());
    throw Error(answer.code, answer.text);
  }
}

void Communicator::add_to(host::Batch& batch, std::span<const Call* const> calls) {
  if (host_->add_exchange(batch, calls)) return;
  for (const Call* call : calls) add_to(batch, *call);
}

void Communicator::hear(const News& news) {
  if (news.kind == News::Kind::kStalls) {
    if (vigil_.stalls != nullptr) vigil_.stalls->hear(news);
    return;
  }
  if (news.kind == News::Kind::kStuck) return vigil_.faults.add_stuck(news, news.text);
  // The rendezvous cannot tell the rank itself, which may live and have lost that connection only.
  if (news.kind == News::Kind::kDied && news.reporter < 0) {
    std::unique_lock lock(vigil_.mutex);
    const std::shared_ptr<PeerWatch> watch = vigil_.watch;
    lock.unlock();
    if (watch != nullptr) watch->tell(news);  // which hears nothing twice
  }
  if (news.is_departure() && news.rank >= 0 && news.rank < options_.nranks) {
    std::lock_guard lock(vigil_.mutex);
    gone_[static_cast<size_t>(news.rank)].store(true);
    if (gpu_ != nullptr) gpu_->peer_left(news.rank);
    if (cpu_nodes_ != nullptr)
      for (const int node : cpu_nodes_->peers_of(news.rank)) {  // CPU nodes that the rank ran
        gone_[static_cast<size_t>(node)].store(true);
        if (gpu_ != nullptr) gpu_->peer_left(node);
      }
    if (context_.door != nullptr) wake_all(*context_.door);
  }
  if (news.is_departure() && news.is_failure() && options_.lost)
    options_.lost(news.rank, news.text);
  if (news.kind == News::Kind::kLeft || news.kind == News::Kind::kQuit) guard_gpu();
  if (!news.is_failure()) return;
  std::string text = news.text;
  if (news.kind == News::Kind::kDied) {
    std::lock_guard lock(vigil_.mutex);
    const std::string who = vigil_.watch != nullptr ? vigil_.watch->describe(news.rank)
                                                    : fmt::format("rank {}", news.rank);
    // Ranks hear of it in different words.
    vigil_.faults.add_death(news.rank, who + " died");
    text = fmt::format("{} died: {}", who, text);
  }
  if (!vigil_.faults.known()) WEFT_INFO(kBootstrap, "{}: {}", context_.label, text);
  // Whoever still waits for that rank ends now, and tells the others.
  if (news.kind == News::Kind::kQuit) return vigil_.faults.hold(news, text);
  if (!vigil_.faults.known()) remember_error(text);
  if (news.kind == News::Kind::kGaveUp) vigil_.faults.wake();
  vigil_.faults.add(news, text);
  if (!news.is_departure()) return end_waits();
  tell_gpu_wait();
  if (vigil_.patience != nullptr) return;
  try {
    vigil_.patience = std::make_unique<Timer>([this, text] {
      end_waits();
      std::lock_guard lock(vigil_.mutex);
      if (control_ != nullptr) control_->interrupt(text);
    });
    vigil_.patience->once(kPatienceS);
  } catch (const Error&) {
    end_waits();  // the process has no descriptor left
  }
}

}  // namespace weft
