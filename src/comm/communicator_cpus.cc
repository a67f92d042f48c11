// The part of a communicator that has CPU nodes: who has which, and how calls reach them.
#include <algorithm>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm/communicator.h"
#include "src/exec/cuda/device_comm.h"

namespace weft {
namespace {

int cpu_nodes_of(const ImportedSchedule& schedule) {
  int most = 0;
  for (const auto& verified : {schedule.in_place, schedule.out_of_place})
    if (verified != nullptr) most = std::max(most, verified->schedule().cpu_nodes);
  return most;
}

}  // namespace

// FIFOs of CPU nodes lie in memory that all ranks must reach.
std::string Communicator::no_cpu_nodes(const std::vector<PeerInfo>& infos) const {
  for (const PeerInfo& info : infos) {
    if (info.host != infos[0].host) return "ranks are on several hosts";
    if (info.process != infos[0].process && (info.shm_disable != 0 || infos[0].shm_disable != 0))
      return "NCCL_SHM_DISABLE is set";
  }
  return "";
}

// As many as any plan needs that may be chosen; beside GPUs, whose rings are pinned, only if one
// is, at some size. Equal on all ranks.
int Communicator::cpu_nodes_for(const std::vector<PeerInfo>& infos) {
  int most = 0;
  for (const Generator* generator : forced_)
    if (generator != nullptr) most = std::max(most, generator->cpu_nodes);
  const SelectionTable& table = agreed_.table;
  for (size_t i = 0; i < option_generators_.size(); i++)
    if (option_generators_[i] != nullptr && table.options[i].barred.empty() &&
        (!cuda::available() || table.chooses(static_cast<int>(i))))
      most = std::max(most, option_generators_[i]->cpu_nodes);
  for (const auto& schedule : connected_->all()) most = std::max(most, cpu_nodes_of(*schedule));
  if (most == 0 || nranks_ == 1) return 0;
  why_no_cpu_nodes_ = no_cpu_nodes(infos);
  if (cuda::available() && nranks_ + most > cuda::kMaxRanks)
    why_no_cpu_nodes_ =
        fmt::format("kernels know no more than {} ranks and CPU nodes", cuda::kMaxRanks);
  return why_no_cpu_nodes_.empty() ? std::min(most, nranks_) : 0;
}

// Nodes are dealt out evenly: processes are usually bound to the sockets of their GPUs.
int Communicator::cpu_node_rank(int node) const {
  return (node * nranks_ + cpu_nodes_ - 1) / cpu_nodes_;
}

std::vector<std::unique_ptr<CpuNode>> Communicator::open_cpu_nodes(const MeshPlan& plan) {
  std::vector<std::unique_ptr<CpuNode>> own;
  for (int node = 0; node < cpu_nodes_; node++) {
    if (cpu_node_rank(node) != rank_) continue;
    own.push_back(std::make_unique<CpuNode>(
        std::make_unique<Mesh>(secret_, nranks_ + node, plan, config_), context_,
        [this](ncclResult_t code, const std::string& text) { stop(code, text, true); }));
    WEFT_INFO(kInit, "{}: has CPU node {} of {}", context_.label, node, cpu_nodes_);
  }
  return own;
}

std::string Communicator::lacks_cpu_nodes(const ImportedSchedule& schedule) const {
  const int needed = cpu_nodes_of(schedule);
  if (needed <= cpu_nodes_) return "";
  return fmt::format("it needs {} CPU nodes, there are {}{}", needed, cpu_nodes_,
                     why_no_cpu_nodes_.empty() ? "" : ": " + why_no_cpu_nodes_);
}

void Communicator::add_cpu_parts(const Call& call, const Plan& plan, uint64_t sequence) {
  for (size_t i = 0; i < plan.cpu_programs.size(); i++) {
    if (plan.cpu_programs[i].lanes.empty()) continue;  // a schedule may have nothing for a node
    CpuNode::Job& job = node_jobs_[i].emplace_back();
    job.program = &plan.cpu_programs[i];
    job.operation = operation_for(call, *job.program, plan.tag);
    job.operation.input = nullptr;
    job.operation.output = nullptr;
    job.operation.sequence = sequence;
  }
}

void Communicator::hand_over() {
  for (size_t i = 0; i < node_jobs_.size(); i++) {
    if (node_jobs_[i].empty()) continue;
    own_nodes_[i]->submit(node_jobs_[i]);
    node_jobs_[i].clear();
  }
}

const Generator* Communicator::without_captured_cpus(const Generator* generator) {
  if (generator == nullptr || !captured_ || generator->cpu_nodes == 0) return generator;
  if (!logged_captured_)
    WEFT_INFO(kTuning, "{}: {} is not used in graphs: CPU nodes do not hear of their replays",
              context_.label, generator->name);
  logged_captured_ = true;
  return nullptr;
}

const Generator* Communicator::generator_of(const PlanOption* option) const {
  if (option == nullptr) return nullptr;
  return option_generators_[static_cast<size_t>(option - agreed_.table.options.data())];
}

bool Communicator::asks_cpus(const Generator* forced, const Collective& collective, size_t bytes) {
  if (!rings_connected_) return false;
  if (forced != nullptr) return forced->cpu_nodes > 0;
  const Generator* generator =
      without_captured_cpus(generator_of(agreed_.table.choose(collective.kind, bytes, false)));
  return generator != nullptr && generator->cpu_nodes > 0;
}

void Communicator::stop_cpu_nodes() noexcept {
  for (const auto& node : own_nodes_) node->stop();
}

}  // namespace weft
