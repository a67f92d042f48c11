// See init_job.h.
#include "src/comm/init_job.h"

#include <memory>
#include <system_error>
#include <thread>

#include "src/base/error.h"
#include "src/base/log.h"

namespace weft {
namespace {

void drop(const InitJob& job) {
  if (job.out != nullptr) *job.out = nullptr;
  if (job.made != nullptr) job.made->state = CommState::kDead;
}

struct RunningJob {
  explicit RunningJob(InitJob given) : job(std::move(given)) {
    job.reports->users.fetch_add(1);
    if (!blocking()) job.reports->progress.begin();
  }
  bool blocking() const { return job.reports->config.blocking; }

  void run() {
    try {
      job.work();
    } catch (const Error& error) {
      result = error.code();
      text = error.what();
    } catch (const std::exception& error) {
      result = ncclInternalError;
      text = error.what();
    }
    job.work = nullptr;  // what it holds may be in use until now
  }

  // Instead of run().
  void refuse(const std::string& why) {
    result = ncclSystemError;
    text = why;
    job.work = nullptr;
    if (job.undo) job.undo();
    if (job.made == nullptr) return;
    set_text(*job.made, why);
    job.made->progress.fail(result);
    CommState expected = CommState::kInitializing;
    job.made->state.compare_exchange_strong(expected, CommState::kFailed);
  }

  // Tells the caller. The communicator that reports may be destroyed from then on.
  void finish() {
    const bool itself = job.made == job.reports;
    if (result != ncclSuccess && blocking()) drop(job);
    if (result == ncclSuccess && !itself && job.out != nullptr)
      std::atomic_ref(*job.out).store(job.made, std::memory_order_release);
    if (!itself) {
      if (result != ncclSuccess) set_text(*job.reports, text);
      std::lock_guard lock(job.reports->mutex);
      std::erase(job.reports->children, job.made);
    }
    if (!blocking()) job.reports->progress.end(result);
    job.reports->users.fetch_sub(1);
  }

  InitJob job;
  std::thread thread;
  ncclResult_t result = ncclSuccess;
  std::string text;
};

// False if there is no thread for it. Nobody waits for jobs of non-blocking communicators.
bool start_thread(const std::shared_ptr<RunningJob>& job) {
  try {
    if (job->blocking()) {
      job->thread = std::thread([job] { job->run(); });
    } else {
      std::thread([job] {
        job->run();
        job->finish();
        if (job->result != ncclSuccess) WEFT_WARN("{}", job->text);
      }).detach();
    }
    return true;
  } catch (const std::system_error& error) {
    job->refuse(fmt::format("no thread to make a communicator: {}", error.what()));
    return false;
  }
}

}  // namespace

ncclResult_t run_init_jobs(std::vector<InitJob> jobs) {
  std::vector<std::shared_ptr<RunningJob>> mine;  // jobs that this thread finishes
  bool background = false;
  std::string refused;
  for (InitJob& given : jobs) {
    const auto job = std::make_shared<RunningJob>(std::move(given));
    if (!refused.empty()) {
      job->refuse(refused);
    } else if (job->blocking() && jobs.size() == 1) {
      job->run();
    } else if (!start_thread(job)) {
      refused = job->text;
    } else if (!job->blocking()) {
      background = true;
      continue;
    }
    mine.push_back(job);
  }
  if (!refused.empty())  // the others would wait for it
    for (const auto& job : mine)
      if (job->job.made != nullptr) job->job.made->cancel->cancel();
  std::shared_ptr<RunningJob> failed;
  for (const auto& job : mine) {
    if (job->thread.joinable()) job->thread.join();
    job->finish();
    if (job->result != ncclSuccess && (failed == nullptr || job->text == refused)) failed = job;
  }
  if (failed != nullptr) throw Error(failed->result, failed->text);
  return background ? ncclInProgress : ncclSuccess;
}

void discard(const std::vector<InitJob>& jobs) {
  for (const InitJob& job : jobs) {
    if (job.undo) job.undo();
    drop(job);
  }
}

}  // namespace weft
