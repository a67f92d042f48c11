// See cpu_nodes.h.
#include "src/comm/cpu_nodes.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/exec/cuda/device_comm.h"
#include "src/exec/cuda/gpu_executor.h"

namespace weft {

// FIFOs of CPU nodes lie in shared memory, so all ranks must be able to share memory.
std::string CpuNodes::forbidden(const std::vector<PeerInfo>& infos) {
  for (const PeerInfo& info : infos) {
    if (info.host != infos[0].host) return "ranks are on several hosts";
    if (info.process != infos[0].process && (info.shm_disable != 0 || infos[0].shm_disable != 0))
      return "NCCL_SHM_DISABLE is set";
  }
  return "";
}

void CpuNodes::decide(int wanted, const std::vector<PeerInfo>& infos) {
  if (wanted == 0 || nranks_ == 1) return;
  why_none_ = forbidden(infos);
  if (cuda::available() && nranks_ + wanted > cuda::kMaxRanks)
    why_none_ = fmt::format("kernels know no more than {} ranks and CPU nodes", cuda::kMaxRanks);
  if (why_none_.empty()) count_ = std::min(wanted, nranks_);
}

std::string CpuNodes::lacks(int needed) const {
  if (needed <= count_) return "";
  return fmt::format("it needs {} CPU nodes, there are {}{}", needed, count_,
                     why_none_.empty() ? "" : ": " + why_none_);
}

std::vector<int> CpuNodes::peers_of(int rank) const {
  std::vector<int> peers;
  for (int node = 0; node < count_; node++)
    if (rank_of(node) == rank) peers.push_back(nranks_ + node);
  return peers;
}

void CpuNodes::open(const Secret& secret, const MeshPlan& plan, const Config& config,
                    const host::RankContext& owner, const CpuNode::Listener& listener) {
  for (const int peer : peers_of(rank_)) {
    own_.push_back(std::make_unique<CpuNode>(std::make_unique<Mesh>(secret, peer, plan, config),
                                             owner, listener));
    WEFT_INFO(kInit, "{}: has CPU node {} of {}", owner.label, peer - nranks_, count_);
  }
  jobs_.resize(own_.size());
}

void CpuNodes::connect(Deadline deadline, ControlChannel& control) {
  for (const auto& node : own_) node->connect(deadline, control);
}

void CpuNodes::serve_gpus() {
  for (const auto& node : own_) node->serve_gpus();
}

void CpuNodes::hand_over() {
  for (size_t i = 0; i < jobs_.size(); i++) {
    if (jobs_[i].empty()) continue;
    own_[i]->submit(jobs_[i]);
    jobs_[i].clear();
  }
}

void CpuNodes::drop_jobs() {
  for (auto& jobs : jobs_) jobs.clear();
}

void CpuNodes::stop() noexcept {
  for (const auto& node : own_) node->stop();
}

void CpuNodes::finish(double seconds) {
  for (const auto& node : own_) node->finish(seconds);
}

}  // namespace weft
