// The CPU nodes of a communicator: how many there are, which rank has which, and the ones that this
// rank runs. A CPU node is a further end of FIFOs that reduces for ranks (cpu_node.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/cpu_node.h"
#include "src/comm/peer_info.h"

namespace weft {

// Calls come from the thread that makes calls, stop() and the queries from any.
class CpuNodes {
 public:
  CpuNodes(int rank, int nranks) : rank_(rank), nranks_(nranks) {}

  // Why ranks like these can have none; empty: they can.
  static std::string why_none(const std::vector<PeerInfo>& infos);
  // Before anything else. Equal on all ranks; `wanted` is what the plans need.
  void decide(int wanted, const std::vector<PeerInfo>& infos);
  int count() const { return count_; }
  // Why there are fewer than wanted; empty: there are not.
  const std::string& why_none() const { return why_none_; }
  // "it needs 2 CPU nodes, there are 0: ..."; empty: there are enough.
  std::string lacks(int needed) const;

  // The rank whose process runs a node. Nodes are dealt out evenly: processes are usually bound to
  // the sockets of their GPUs.
  int rank_of(int node) const { return (node * nranks_ + count_ - 1) / count_; }
  // The peer numbers of the nodes that a rank runs; they follow those of the ranks.
  std::vector<int> peers_of(int rank) const;

  // Makes this rank's nodes, so that others can connect to them.
  void open(const Secret& secret, const MeshPlan& plan, const Config& config,
            const host::RankContext& owner, const CpuNode::Listener& listener);
  void connect(Deadline deadline);
  // Peers are GPUs.
  void serve_gpus();
  const std::vector<std::unique_ptr<CpuNode>>& own() const { return own_; }

  // A job for own node `i`, to be run with the batch that is being built.
  void add_job(size_t i, const CpuNode::Job& job) { jobs_[i].push_back(job); }
  // Just before the batch runs.
  void hand_over();
  // The batch was given up.
  void drop_jobs();

  // Ends every wait of this rank's nodes, now and later.
  void stop() noexcept;
  // Lets them do what they were given, for at most `seconds` each, and ends their threads.
  void finish(double seconds);

 private:
  const int rank_, nranks_;
  int count_ = 0;
  std::string why_none_;
  std::vector<std::unique_ptr<CpuNode>> own_;
  std::vector<std::vector<CpuNode::Job>> jobs_;  // per own node, of the batch being built
};

}  // namespace weft
