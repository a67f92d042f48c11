// The CPU nodes of a communicator: their number, the rank that runs each, and this rank's own
// nodes. A CPU node is a further peer that reduces for ranks (cpu_node.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/cpu_node.h"
#include "src/comm/peer_info.h"

namespace weft {

// For the thread that makes calls. Any thread may call stop() and the queries.
class CpuNodes {
 public:
  CpuNodes(int rank, int nranks) : rank_(rank), nranks_(nranks) {}

  // Why these ranks can have no CPU nodes; empty: they can.
  static std::string forbidden(const std::vector<PeerInfo>& infos);
  // Called first, with equal arguments on all ranks. `wanted`: the most nodes that a plan needs.
  void decide(int wanted, const std::vector<PeerInfo>& infos);
  int count() const { return count_; }
  // Why there are no nodes although plans want some; empty: there is no such reason.
  const std::string& why_none() const { return why_none_; }
  // "it needs 2 CPU nodes, there are 0: ..."; empty: there are enough.
  std::string lacks(int needed) const;

  // The rank whose process runs a node. Nodes are spread evenly over ranks, because a process is
  // usually bound to the socket of its GPU.
  int rank_of(int node) const { return (node * nranks_ + count_ - 1) / count_; }
  // The peer numbers of the nodes that a rank runs. Nodes are numbered after the ranks.
  std::vector<int> peers_of(int rank) const;

  // Makes this rank's nodes. Peers can connect to them from then on.
  void open(const Secret& secret, const MeshPlan& plan, const Config& config,
            const host::RankContext& owner, const CpuNode::Listener& listener);
  void connect(Deadline deadline, ControlChannel& control);
  // Called before the first job if peers are GPUs.
  void serve_gpus();
  const std::vector<std::unique_ptr<CpuNode>>& own() const { return own_; }

  // Adds a job for own node `i` to the batch that is being built.
  void add_job(size_t i, const CpuNode::Job& job) { jobs_[i].push_back(job); }
  // Gives the nodes their jobs, just before the batch runs.
  void hand_over();
  // Forgets the jobs of a batch that will not run.
  void drop_jobs();

  // Ends every present and future wait of this rank's nodes.
  void stop() noexcept;
  // Waits at most `seconds` per node until its jobs are done, then ends its thread.
  void finish(double seconds);

 private:
  const int rank_, nranks_;
  int count_ = 0;
  std::string why_none_;
  std::vector<std::unique_ptr<CpuNode>> own_;
  std::vector<std::vector<CpuNode::Job>> jobs_;  // per own node, of the batch being built
};

}  // namespace weft
