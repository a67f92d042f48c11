// The part of a communicator that ends waits, after an abort, a dead peer or a kernel's error.
#include "src/base/log.h"
#include "src/comm/communicator.h"
#include "src/transport/doorbell.h"

namespace weft {

std::string Communicator::fault() const {
  std::lock_guard lock(fault_.mutex);
  return fault_.text;
}

ncclResult_t Communicator::fault_code() const {
  std::lock_guard lock(fault_.mutex);
  return fault_.code;
}

void Communicator::poll_gpu() {
  if (gpu_ == nullptr || !fault().empty()) return;
  const std::string error = gpu_->error();
  if (!error.empty()) stop(ncclInvalidUsage, fmt::format("{}: {}", context_.label, error), true);
}

void Communicator::end_waits(ncclResult_t code, const std::string& why) {
  if (fault_.text.empty()) {
    fault_.text = why;
    fault_.code = code;
  }
  context_.stop.store(1, std::memory_order_release);
  if (cpu_nodes_ != nullptr) cpu_nodes_->stop();
  if (gpu_ != nullptr) gpu_->stop();
}

void Communicator::stop(ncclResult_t code, const std::string& why, bool tell) {
  {
    std::lock_guard lock(fault_.mutex);
    end_waits(code, why);
    if (context_.door != nullptr) wake_all(*context_.door);
  }
  if (tell && control_ != nullptr) control_->abort(why);
}

// Runs on the control thread. During construction the control channel itself ends the wait of the
// constructing thread.
void Communicator::on_news(int peer, bool failed, const std::string& why) {
  if (peer < 0) {
    // The rendezvous is lost. If a rank's process held it, that rank died.
    int holder = -1;
    const uint64_t process = ready_.load() ? control_->rendezvous_process() : 0;
    for (int r = 0; failed && ready_.load() && r < options_.nranks; r++)
      if (mesh_->info(r).process == process && !gone_[static_cast<size_t>(r)].load()) holder = r;
    if (holder < 0) {
      WEFT_INFO(kBootstrap, "{}: {}; peers that die will not be noticed any more", context_.label,
                why);
      return;
    }
    return on_news(holder, true, fmt::format("rank {} died: {}", holder, why));
  }
  std::lock_guard lock(fault_.mutex);
  const bool is_rank = peer < options_.nranks;
  std::vector<int> nodes;  // CPU nodes that the rank ran
  if (cpu_nodes_ != nullptr) nodes = cpu_nodes_->peers_of(peer);
  if (is_rank) gone_[static_cast<size_t>(peer)].store(true);
  for (const int node : nodes) gone_[static_cast<size_t>(node)].store(true);
  if (failed) {
    end_waits(ncclRemoteError, fmt::format("{}: {}", context_.label, why));
  } else if (gpu_ != nullptr && is_rank) {
    gpu_->peer_left(peer);
    for (const int node : nodes) gpu_->peer_left(node);
  }
  if (context_.door != nullptr) wake_all(*context_.door);
}

}  // namespace weft
