// See cpu_node.h.
#include "src/comm/cpu_node.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/process_cores.h"
#include "src/transport/doorbell.h"

namespace weft {
namespace {

// For calls of fewer bytes, waking helper threads costs more than it saves.
constexpr uint64_t kHelpedBytes = 256u << 10;
constexpr uint64_t kIdleSleepNs = 50'000'000;

}  // namespace

CpuNode::CpuNode(std::unique_ptr<Mesh> mesh, const host::RankContext& owner, Listener listener)
    : mesh_(std::move(mesh)), listener_(std::move(listener)) {
  context_.rank = mesh_->rank();
  context_.label = fmt::format("CPU node {} (of {})", context_.rank, owner.label);
  context_.door = &mesh_->door();
  context_.gone = owner.gone;
  context_.timeout_s = owner.timeout_s;
  context_.stall_warning_s = owner.stall_warning_s;
  context_.local_ranks = mesh_->ranks_of_machine();
  context_.cpu_nodes_from = owner.cpu_nodes_from;
}

CpuNode::~CpuNode() {
  stop();
  finish(0);
}

void CpuNode::connect(Deadline deadline, ControlChannel& control) {
  mesh_->connect_host(deadline, control);
}

void CpuNode::submit(std::span<const Job> jobs) {
  {
    std::lock_guard lock(mutex_);
    jobs_.insert(jobs_.end(), jobs.begin(), jobs.end());
  }
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { work(); });
    pthread_setname_np(thread_.native_handle(), "weft-cpu-node");
    const cpu_set_t cores = cores_of_process();
    if (CPU_COUNT(&cores) > 0)
      pthread_setaffinity_np(thread_.native_handle(), sizeof cores, &cores);
  }
  ring({context_.door, -1});
}

void CpuNode::stop() noexcept {
  context_.stop.store(1, std::memory_order_release);
  wake_all(*context_.door);
}

void CpuNode::finish(double seconds) {
  if (!thread_.joinable()) return;
  const auto deadline = in_seconds(seconds);
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      leaving_ = true;
      if (jobs_.empty() && !busy_) break;
    }
    if (std::chrono::steady_clock::now() > deadline && context_.stop.load() == 0) {
      if (seconds > 0)
        WEFT_WARN("{}: leaves, though others have not made their part of a call for {:.0f} s",
                  context_.label, seconds);
      stop();
    }
    if (context_.stop.load() != 0) break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  wake_all(*context_.door);
  thread_.join();
}

// Waits for jobs and takes all of them. False: the node stops.
bool CpuNode::take(std::vector<Job>& jobs) {
  for (;;) {
    const uint32_t ticket = prepare_sleep(*context_.door);
    {
      std::lock_guard lock(mutex_);
      jobs.clear();
      std::swap(jobs, jobs_);
      busy_ = !jobs.empty();
      if (context_.stop.load(std::memory_order_acquire) != 0) return false;
      if (busy_) return true;
      if (leaving_) return false;
    }
    sleep(*context_.door, ticket, kIdleSleepNs);
  }
}

void CpuNode::work() {
  std::vector<Job> jobs;
  while (take(jobs))
    for (const Job& job : jobs)
      if (!run(job)) return;
}

bool CpuNode::run(const Job& job) {
  host::Outcome outcome;
  try {
    batch_.clear();
    host::Task& task = batch_.add();
    task.context = &context_;
    task.operation = job.operation;
    const size_t scratch = static_cast<size_t>(job.program->scratch_chunks) * job.operation.chunk *
                           job.operation.element;
    if (scratch_.size() < scratch) scratch_ = Mapping::anonymous(scratch);
    task.operation.scratch = scratch > 0 ? scratch_.data() : nullptr;
    task.sends.clear();
    task.receives.clear();
    for (const ProgramPort& port : job.program->sends)
      task.sends.push_back(&mesh_->sender(port.peer, collective_channel(port.channel)));
    for (const ProgramPort& port : job.program->receives)
      task.receives.push_back(&mesh_->receiver(port.peer, collective_channel(port.channel)));
    const bool large = job.operation.count * job.operation.element >= kHelpedBytes;
    outcome = batch_.run(large ? job.program->lanes.size() - 1 : 0);
  } catch (const Error& error) {
    outcome = {error.code(), fmt::format("{}: {}", context_.label, error.what()), nullptr};
  }
  if (outcome.code == ncclSuccess) return true;
  // No text: stop() ended the operation, and its caller has told the other ranks.
  if (!outcome.text.empty()) listener_(outcome.code, outcome.text);
  return false;
}

}  // namespace weft
