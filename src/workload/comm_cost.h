// What a collective of a group of ranks costs on a machine: its time alone, and the bytes that it
// puts on every link. The simulator says both, for the best of the generators. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/planner/gpu_rates.h"
#include "src/schedule/collective.h"
#include "src/topology/graph/machine.h"

namespace weft::workload {

// The ranks of a group. Groups that work at the same time, such as the data parallel groups of all
// tensor ranks, are instances of one.
using Instances = std::vector<std::vector<int>>;

struct LinkLoad {
  int link = 0;      // of the machine
  double share = 0;  // of the link's bandwidth, while the collective runs at full speed
};

struct CommCost {
  double us = 0;                // all instances together, nothing else on the links
  std::string plan;             // the generator of the first instance
  std::vector<LinkLoad> loads;  // by link
};

// Rank r sits on the machine's GPU number r. The machine must outlive it.
class CommCosts {
 public:
  explicit CommCosts(const Machine& machine);

  // `bytes` is the size of the whole array, as in nccl-tests; of send_recv, of the message. The
  // reference stays valid. Throws Error if a rank is not on the machine, or no route exists.
  const CommCost& cost(CollectiveKind kind, double bytes, const Instances& instances);

  const Machine& machine() const { return machine_; }
  int simulations() const { return simulations_; }

 private:
  // One instance on its part of the machine. Instances whose parts look alike share it.
  struct Part;
  struct Simulated {
    double us = 0;
    std::string plan;
    std::vector<std::pair<int, double>> bytes;  // per link of the part
  };

  const Part& part_of(const std::vector<int>& ranks);
  const Simulated& simulated(const Part& part, CollectiveKind kind, double bytes);

  const Machine& machine_;
  const std::vector<int> gpus_;
  const GpuRates rates_;
  int simulations_ = 0;
  std::map<std::vector<int>, std::shared_ptr<Part>> parts_;
  std::map<std::string, std::shared_ptr<const Machine>> alike_;  // by how they look
  std::map<std::pair<const Machine*, std::pair<CollectiveKind, double>>, Simulated> memo_;
  std::map<std::pair<std::pair<CollectiveKind, double>, Instances>, CommCost> costs_;
};

}  // namespace weft::workload
